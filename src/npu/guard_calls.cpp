// Memory, mappings and sessions: what the guard answers to each call, and how arguments reach the driver's thread.
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/units.h"
#include "npu/guard_core.h"

namespace kazeia::npu {
namespace {

// Methods of upstream's DSP interface (htp_iface.idl).
enum Method : std::uint32_t {
  kStartMethod = 2,
  kStopMethod = 3,
  kMmapMethod = 4,
  kMunmapMethod = 5,
  kHwinfoMethod = 8
};

std::string_view method_task(std::uint32_t method) {
  switch (method) {
    case kStartMethod:
      return "start the session";
    case kStopMethod:
      return "stop the session";
    case kMmapMethod:
      return "map a buffer";
    case kMunmapMethod:
      return "drop a mapping";
    case kHwinfoMethod:
      return "describe the hardware";
    default:
      return "run a method of its library";
  }
}

// Arguments of a remote call on the heap: inputs copied in, outputs with memory of their own.
struct Invocation {
  Invocation(std::uint32_t scalars, const remote_arg* arguments)
      : n_in(REMOTE_SCALARS_INBUFS(scalars)), n_buffers(n_in + REMOTE_SCALARS_OUTBUFS(scalars)) {
    const std::size_t n_all = n_buffers + REMOTE_SCALARS_INHANDLES(scalars) + REMOTE_SCALARS_OUTHANDLES(scalars);
    if (n_all > 0) copies.assign(arguments, arguments + n_all);
    for (std::size_t i = 0; i < n_buffers; ++i) {
      const auto* bytes = static_cast<const std::byte*>(arguments[i].buf.pv);
      std::vector<std::byte>& memory = memories.emplace_back();
      if (bytes != nullptr) memory.assign(bytes, bytes + arguments[i].buf.nLen);
      copies[i].buf.pv = memory.data();
    }
  }
  void give_back(remote_arg* arguments) const {
    for (std::size_t i = n_in; i < n_buffers; ++i) {
      if (!memories[i].empty()) std::memcpy(arguments[i].buf.pv, memories[i].data(), memories[i].size());
    }
    for (std::size_t i = n_buffers; i < copies.size(); ++i) arguments[i] = copies[i];
  }

  std::size_t n_in;
  std::size_t n_buffers;
  std::vector<std::vector<std::byte>> memories;
  std::vector<remote_arg> copies;
  int error = AEE_EFAILED;
};

// A request of remote_session_control with everything it points to.
struct SessionRequest {
  SessionRequest(std::uint32_t number, const void* data, std::uint32_t bytes) : body(bytes) {
    if (bytes > 0) std::memcpy(body.data(), data, bytes);
    if (number == FASTRPC_RESERVE_NEW_SESSION && bytes == sizeof(remote_rpc_reserve_new_session)) {
      own(&remote_rpc_reserve_new_session::domain_name, &remote_rpc_reserve_new_session::domain_name_len);
      own(&remote_rpc_reserve_new_session::session_name, &remote_rpc_reserve_new_session::session_name_len);
    } else if (number == FASTRPC_GET_EFFECTIVE_DOMAIN_ID && bytes == sizeof(remote_rpc_effective_domain_id)) {
      own(&remote_rpc_effective_domain_id::domain_name, &remote_rpc_effective_domain_id::domain_name_len);
    } else if (number == FASTRPC_GET_URI && bytes == sizeof(remote_rpc_get_uri)) {
      own(&remote_rpc_get_uri::domain_name, &remote_rpc_get_uri::domain_name_len);
      own(&remote_rpc_get_uri::module_uri, &remote_rpc_get_uri::module_uri_len);
      own(&remote_rpc_get_uri::uri, &remote_rpc_get_uri::uri_len);
      texts.back().is_output = true;
    }
  }
  void give_back(void* data) {
    for (const Text& text : texts) {
      char* original = text.original;
      std::memcpy(body.data() + text.at, &original, sizeof(original));
      if (text.is_output && original != nullptr) std::memcpy(original, text.copy.data(), text.copy.size() - 1);
    }
    if (!body.empty()) std::memcpy(data, body.data(), body.size());
  }

  template <typename Request>
  void own(char* Request::*pointer, std::uint32_t Request::*length) {
    Request request;
    std::memcpy(&request, body.data(), sizeof(request));
    Text text;
    text.at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(&(request.*pointer)) -
                                       reinterpret_cast<std::byte*>(&request));
    text.original = request.*pointer;
    // One byte more: drivers read names both by length and up to the zero.
    text.copy.assign(std::size_t{request.*length} + 1, '\0');
    if (text.original != nullptr) std::memcpy(text.copy.data(), text.original, request.*length);
    texts.push_back(std::move(text));
    char* copy = texts.back().original == nullptr ? nullptr : texts.back().copy.data();
    std::memcpy(body.data() + texts.back().at, &copy, sizeof(copy));
  }

  struct Text {
    std::size_t at = 0;  // of the pointer in the body
    char* original = nullptr;
    bool is_output = false;
    std::vector<char> copy;
  };
  std::vector<std::byte> body;
  std::vector<Text> texts;
  int error = AEE_EFAILED;
};

}  // namespace

void* GuardCore::allocate(std::uint64_t bytes, std::function<void*()> call) {
  const std::lock_guard calls(calls_);
  auto memory = std::make_shared<void*>(nullptr);
  // The kernel clears the pages first, which takes its time for gigabytes: never less than a session call gets.
  const bool answered = forward("allocate shared memory", std::chrono::milliseconds(options_.start_deadline_ms),
                                [memory, call = std::move(call)] { *memory = call(); });
  if (!answered) return nullptr;
  if (*memory == nullptr) {
    refuse(FailureKind::kOutOfMemory,
           fmt::format("the NPU's driver has no {} of shared memory left", format_bytes(bytes)));
    return nullptr;
  }
  const std::lock_guard lock(state_);
  allocated_[*memory] = bytes;
  return *memory;
}

void GuardCore::free(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard calls(calls_);
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(state_);
    if (const auto found = allocated_.find(memory); found != allocated_.end()) {
      bytes = found->second;
      allocated_.erase(found);
    }
  }
  const bool freed =
      !keeps_memory() && forward("free shared memory", limit(), [call = driver_.rpcmem_free, memory] { call(memory); });
  if (freed) return;
  const std::lock_guard lock(state_);
  status_.leaked_bytes += bytes;
}

int GuardCore::to_fd(void* memory) {
  const std::lock_guard calls(calls_);
  auto fd = std::make_shared<int>(-1);
  const bool answered =
      forward("name a buffer", limit(), [fd, call = driver_.rpcmem_to_fd, memory] { *fd = call(memory); });
  return answered ? *fd : -1;
}

int GuardCore::map(int domain, int fd, void* address, int offset, std::size_t bytes, fastrpc_map_flags flags) {
  const std::lock_guard calls(calls_);
  if (failed()) return in_session() ? AEE_SUCCESS : AEE_ECONNRESET;
  auto error = std::make_shared<int>(AEE_EFAILED);
  const std::string what = fmt::format("map {} for the NPU", format_bytes(bytes));
  if (!forward(what, limit(), [=, call = driver_.mmap] { *error = call(domain, fd, address, offset, bytes, flags); }))
    return in_session() ? AEE_SUCCESS : AEE_EEXPIRED;
  return *error == AEE_SUCCESS ? AEE_SUCCESS : report(FailureKind::kMap, what, *error);
}

int GuardCore::unmap(int domain, int fd, void* address, std::size_t bytes) {
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_SUCCESS;
  auto error = std::make_shared<int>(AEE_EFAILED);
  if (!forward("unmap a buffer", limit(), [=, call = driver_.munmap] { *error = call(domain, fd, address, bytes); }))
    return AEE_SUCCESS;
  // A buffer that stays mapped costs address space and nothing else; a session that is gone costs everything.
  if (*error != AEE_SUCCESS && kind_of_driver_error(*error) == FailureKind::kLost)
    report(FailureKind::kLost, "unmap a buffer", *error);
  return AEE_SUCCESS;
}

int GuardCore::open(const char* uri, remote_handle64* handle) {
  struct Opening {
    std::string uri;
    remote_handle64 handle = 0;
    int error = AEE_EFAILED;
  };
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_ECONNRESET;  // a device that failed is not opened again by this process
  auto opening = std::make_shared<Opening>();
  opening->uri = uri == nullptr ? "" : uri;
  const bool answered =
      forward("open a session", std::chrono::milliseconds(options_.start_deadline_ms),
              [opening, call = driver_.handle_open] { opening->error = call(opening->uri.c_str(), &opening->handle); });
  if (!answered) return AEE_EEXPIRED;
  if (opening->error == AEE_SUCCESS) {
    *handle = opening->handle;
  } else {
    refuse_start("open a session", opening->error);
  }
  return opening->error;
}

int GuardCore::invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments) {
  const std::uint32_t method = REMOTE_SCALARS_METHOD(scalars);
  const bool sets_up = method == kStartMethod || method == kHwinfoMethod;
  const bool releases = method == kStopMethod || method == kMunmapMethod;
  const std::lock_guard calls(calls_);
  if (failed()) return sets_up ? AEE_ECONNRESET : AEE_SUCCESS;
  auto invocation = std::make_shared<Invocation>(scalars, arguments);
  const std::chrono::milliseconds patience = sets_up ? std::chrono::milliseconds(options_.start_deadline_ms) : limit();
  const bool answered =
      forward(method_task(method), patience, [invocation, call = driver_.handle_invoke, handle, scalars] {
        invocation->error = call(handle, scalars, invocation->copies.empty() ? nullptr : invocation->copies.data());
      });
  if (!answered) return sets_up ? AEE_EEXPIRED : AEE_SUCCESS;
  const int error = invocation->error;
  if (error == AEE_SUCCESS) {
    invocation->give_back(arguments);
    if (method == kStartMethod) {
      const std::lock_guard lock(state_);
      sessions_.insert(static_cast<remote_handle>(handle));
      // What did not work on the way here (an optional query, memory measured by exhausting it) did no harm.
      if (!failed()) {
        status_.kind = FailureKind::kNone;
        status_.reason.clear();
      }
    }
    return AEE_SUCCESS;
  }
  if (sets_up) {
    refuse_start(method_task(method), error);
    return error;
  }
  if (method == kStopMethod || kind_of_driver_error(error) == FailureKind::kLost)
    report(FailureKind::kError, method_task(method), error);
  return releases ? AEE_SUCCESS : error;
}

int GuardCore::close(remote_handle handle) {
  const std::lock_guard calls(calls_);
  if (!failed()) {
    forward("close the session", limit(), [call = driver_.handle_close, handle] { call(handle); });
  }
  const std::lock_guard lock(state_);
  sessions_.erase(handle);
  return AEE_SUCCESS;
}

int GuardCore::copied_control(std::string_view what, void* data, std::uint32_t bytes, std::function<int(void*)> call) {
  struct Control {
    std::vector<std::byte> data;
    int error = AEE_EFAILED;
  };
  const std::lock_guard calls(calls_);
  if (failed()) return in_session() ? AEE_SUCCESS : AEE_ECONNRESET;
  auto control = std::make_shared<Control>();
  if (data != nullptr) {
    const auto* begin = static_cast<const std::byte*>(data);
    control->data.assign(begin, begin + bytes);
  }
  if (!forward(what, limit(), [control, call = std::move(call)] { control->error = call(control->data.data()); }))
    return in_session() ? AEE_SUCCESS : AEE_EEXPIRED;
  if (!control->data.empty()) std::memcpy(data, control->data.data(), control->data.size());
  if (control->error != AEE_SUCCESS) {
    // Upstream warns and goes on; only a session that is gone matters.
    if (!in_session() || kind_of_driver_error(control->error) == FailureKind::kLost)
      return report(FailureKind::kError, what, control->error);
  }
  return control->error;
}

int GuardCore::handle_control(remote_handle64 handle, std::uint32_t request, void* data, std::uint32_t bytes) {
  return copied_control("set the session's latency", data, bytes,
                        [call = driver_.handle_control, handle, request, bytes](void* copy) {
                          return call(handle, request, copy, bytes);
                        });
}

int GuardCore::driver_control(std::uint32_t request, void* data, std::uint32_t bytes) {
  return copied_control(
      "describe the device", data, bytes,
      [call = driver_.driver_control, request, bytes](void* copy) { return call(request, copy, bytes); });
}

int GuardCore::session_control(std::uint32_t request, void* data, std::uint32_t bytes) {
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_ECONNRESET;  // only asked to set up a new session
  auto copy = std::make_shared<SessionRequest>(request, data, bytes);
  const bool answered = forward("set up a session", std::chrono::milliseconds(options_.start_deadline_ms),
                                [copy, call = driver_.session_control, request, bytes] {
                                  copy->error = call(request, copy->body.data(), bytes);
                                });
  if (!answered) return AEE_EEXPIRED;
  copy->give_back(data);
  if (copy->error != AEE_SUCCESS) refuse_start(fmt::format("grant session request {}", request), copy->error);
  return copy->error;
}

}  // namespace kazeia::npu
