#include "emulated_dsp/sessions.h"

#include <AEEStdErr.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "emulated_dsp/counters.h"
#include "emulated_dsp/faults.h"

namespace kazeia::emulated_dsp {
namespace {

constexpr std::uint32_t kThreads = 8;
constexpr std::uint32_t kVectorUnits = 8;
constexpr std::uint32_t kMatrixUnits = 1;
constexpr std::uint64_t kVtcmBytes = 8 * 1024 * 1024;

struct Registry {
  std::mutex mutex;
  std::map<remote_handle64, std::shared_ptr<Queue>> sessions;  // null until started
  std::map<std::uint64_t, std::shared_ptr<Queue>> queues;
  std::uint64_t next = 1;
};

Registry& registry() {
  static auto* const all = new Registry();
  return *all;
}

std::uint64_t number_of(dspqueue_t queue) {
  return reinterpret_cast<std::uintptr_t>(queue);
}

// What the session runs on, null until it is started; nullopt: there is no such session.
std::optional<std::shared_ptr<Queue>> queue_of(remote_handle64 handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto session = all.sessions.find(handle);
  if (session == all.sessions.end()) return std::nullopt;
  return session->second;
}

// The methods by number, with the bytes of their one buffer: in (or out, for hwinfo).
enum Method : std::uint32_t {
  kStart = 2,
  kStop = 3,
  kMap = 4,
  kUnmap = 5,
  kProfiler = 6,
  kTrace = 7,
  kHardware = 8,
};

struct Signature {
  std::uint32_t in;
  std::uint32_t out;
  std::size_t bytes;
};

const Signature* signature(std::uint32_t method) {
  static constexpr std::array<Signature, 9> all{
      {{}, {}, {1, 0, 32}, {0, 0, 0}, {1, 0, 16}, {1, 0, 4}, {1, 0, 36}, {1, 0, 4}, {0, 1, 24}}};
  return method >= kStart && method < all.size() ? &all[method] : nullptr;
}

template <typename T>
T read_at(const remote_arg& argument, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::uint8_t*>(argument.buf.pv) + offset, sizeof(value));
  return value;
}

template <typename T>
void write_at(const remote_arg& argument, std::size_t offset, T value) {
  std::memcpy(static_cast<std::uint8_t*>(argument.buf.pv) + offset, &value, sizeof(value));
}

int start(remote_handle64 handle, const remote_arg& argument) {
  const Fault fault = current_fault();
  if (fault == Fault::kStartHang) hang_forever();
  if (fault == Fault::kStartError) {
    fault_happened();
    return AEE_EFAILED;
  }
  if (fault == Fault::kSlowStart) {
    fault_happened();
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms()));
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto queue = all.queues.find(read_at<std::uint64_t>(argument, 8));
  auto& started = all.sessions[handle];
  if (queue == all.queues.end() || started != nullptr) return AEE_EBADPARM;
  const int error = queue->second->start(read_at<std::uint64_t>(argument, 24));
  if (error != AEE_SUCCESS) return error;
  started = queue->second;
  return AEE_SUCCESS;
}

int stop(remote_handle64 handle) {
  if (current_fault() == Fault::kStopError) {
    fault_happened();
    return AEE_EFAILED;
  }
  std::shared_ptr<Queue> queue;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    queue = std::exchange(all.sessions[handle], nullptr);
  }
  if (queue == nullptr) return AEE_EBADPARM;
  queue->stop();
  return AEE_SUCCESS;
}

void describe_hardware(const remote_arg& argument) {
  write_at(argument, 0, kThreads);
  write_at(argument, 4, kVectorUnits);
  write_at(argument, 8, kMatrixUnits);
  write_at(argument, 16, kVtcmBytes);
}

}  // namespace

int open_session(const char* uri, remote_handle64* handle) {
  if (uri == nullptr || handle == nullptr) return AEE_EBADPARM;
  const std::string_view name(uri);
  if (!name.starts_with("file:///libggml-htp-v") || name.find("htp_iface_skel_handle_invoke") == name.npos ||
      name.find("&_dom=") == name.npos) {
    return AEE_EUNABLETOLOAD;
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  *handle = all.next++;
  all.sessions[*handle] = nullptr;
  ++counters().sessions_open;
  return AEE_SUCCESS;
}

int close_session(remote_handle64 handle) {
  const auto queue = queue_of(handle);
  if (!queue) return AEE_EBADPARM;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (all.sessions.erase(handle) == 0) return AEE_EBADPARM;  // another thread closed it meanwhile
  }
  if (*queue != nullptr) (*queue)->stop();
  --counters().sessions_open;
  return AEE_SUCCESS;
}

int invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments) {
  const std::uint32_t method = REMOTE_SCALARS_METHOD(scalars);
  const Signature* expected = signature(method);
  if (expected == nullptr || REMOTE_SCALARS_INBUFS(scalars) != expected->in ||
      REMOTE_SCALARS_OUTBUFS(scalars) != expected->out || (scalars & 0xff) != 0) {
    return AEE_EBADPARM;
  }
  if (expected->bytes != 0 &&
      (arguments == nullptr || arguments[0].buf.pv == nullptr || arguments[0].buf.nLen != expected->bytes)) {
    return AEE_EBADPARM;
  }
  const auto session = queue_of(handle);
  if (!session) return AEE_EBADPARM;
  Queue* const queue = session->get();
  switch (method) {
    case kStart:
      return start(handle, arguments[0]);
    case kStop:
      return stop(handle);
    case kMap:
      if (queue != nullptr) queue->keep(read_at<int>(arguments[0], 0));
      return AEE_SUCCESS;
    case kUnmap:
      if (queue != nullptr) queue->let_go(read_at<int>(arguments[0], 0));
      return AEE_SUCCESS;
    case kProfiler:
      if (queue != nullptr) queue->profile(read_at<std::uint32_t>(arguments[0], 0) != HTP_PROF_DISABLED);
      return AEE_SUCCESS;
    case kHardware:
      describe_hardware(arguments[0]);
      return AEE_SUCCESS;
    default:
      return AEE_SUCCESS;  // tracing: nothing to trace
  }
}

int create_queue(int domain, std::size_t request_bytes, std::size_t answer_bytes, dspqueue_t* queue) {
  if (queue == nullptr || request_bytes == 0 || answer_bytes == 0) return AEE_EBADPARM;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const std::uint64_t number = all.next++;
  all.queues[number] = std::make_shared<Queue>(domain, request_bytes, answer_bytes);
  *queue = reinterpret_cast<dspqueue_t>(static_cast<std::uintptr_t>(number));
  return AEE_SUCCESS;
}

int close_queue(dspqueue_t queue) {
  std::shared_ptr<Queue> closing;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto entry = all.queues.find(number_of(queue));
    if (entry == all.queues.end()) return AEE_EBADPARM;
    closing = entry->second;
    all.queues.erase(entry);
  }
  closing->stop();
  return AEE_SUCCESS;
}

int export_queue(dspqueue_t queue, std::uint64_t* id) {
  if (id == nullptr || find_queue(queue) == nullptr) return AEE_EBADPARM;
  *id = number_of(queue);
  return AEE_SUCCESS;
}

std::shared_ptr<Queue> find_queue(dspqueue_t queue) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.queues.find(number_of(queue));
  return entry == all.queues.end() ? nullptr : entry->second;
}

int domain_named(const char* name, std::size_t length) {
  if (name == nullptr) return -1;
  const std::string_view wanted(name, strnlen(name, length));
  if (wanted == "cdsp") return CDSP_DOMAIN_ID;
  if (wanted == "cdsp1") return CDSP1_DOMAIN_ID;
  return -1;
}

}  // namespace kazeia::emulated_dsp
