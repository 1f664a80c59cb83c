// The entry points of libcdsprpc.so. Every one asks first whether a fault applies, then hands on.
//
// Not here on purpose: remote_system_request. Its structs are not public, and upstream's host code uses a static table
// of domains without it.
#include <AEEStdErr.h>
#include <dspqueue.h>
#include <remote.h>
#include <rpcmem.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "emulated_dsp/counters.h"
#include "emulated_dsp/faults.h"
#include "emulated_dsp/memory.h"
#include "emulated_dsp/sessions.h"

#define ENTRY_POINT extern "C" __attribute__((visibility("default")))

namespace dsp = kazeia::emulated_dsp;
using dsp::Fault;

namespace {

constexpr std::uint32_t kArchitecture = 0x79;
// Virtual sessions beyond the first live in domains of their own.
constexpr std::uint32_t kDomainsPerSession = 16;

bool fails_now(Fault fault) {
  if (dsp::current_fault() != fault) return false;
  dsp::fault_happened();
  return true;
}

int reserve_session(remote_rpc_reserve_new_session& request) {
  static std::atomic<std::uint32_t> next{1};
  const int domain = dsp::domain_named(request.domain_name, request.domain_name_len);
  if (domain < 0) return AEE_EBADPARM;
  request.session_id = next++;
  request.effective_domain_id = static_cast<std::uint32_t>(domain) + kDomainsPerSession * request.session_id;
  return AEE_SUCCESS;
}

int effective_domain(remote_rpc_effective_domain_id& request) {
  const int domain = dsp::domain_named(request.domain_name, request.domain_name_len);
  if (domain < 0) return AEE_EBADPARM;
  request.effective_domain_id = static_cast<std::uint32_t>(domain) + kDomainsPerSession * request.session_id;
  return AEE_SUCCESS;
}

int module_uri(remote_rpc_get_uri& request) {
  const int domain = dsp::domain_named(request.domain_name, request.domain_name_len);
  if (domain < 0 || request.module_uri == nullptr || request.uri == nullptr) return AEE_EBADPARM;
  const std::string uri = std::string(request.module_uri, request.module_uri_len) +
                          "&_dom=" + std::string(request.domain_name, request.domain_name_len) +
                          "&_session=" + std::to_string(request.session_id);
  if (uri.size() + 1 > request.uri_len) return AEE_EBADPARM;
  uri.copy(request.uri, uri.size());
  request.uri[uri.size()] = '\0';
  return AEE_SUCCESS;
}

// The request's struct, or null if `length` is not its size.
template <typename Struct>
Struct* as(void* data, std::uint32_t length) {
  return data != nullptr && length == sizeof(Struct) ? static_cast<Struct*>(data) : nullptr;
}

// Counters at exit, for whoever runs a program against the double.
struct DumpAtExit {
  ~DumpAtExit() {
    const char* wanted = std::getenv("KAZEIA_DSP_STATS");
    if (wanted != nullptr && std::string_view(wanted) == "1") dsp::counters().dump();
  }
} dump_at_exit;

}  // namespace

ENTRY_POINT void* rpcmem_alloc2(int heap_id, std::uint32_t /*flags*/, std::size_t size) {
  if (heap_id != RPCMEM_HEAP_ID_SYSTEM) return nullptr;
  void* memory = dsp::memory().allocate(size, dsp::memory_limit());
  if (memory == nullptr && dsp::current_fault() == Fault::kOutOfMemory) dsp::fault_happened();
  return memory;
}

ENTRY_POINT void* rpcmem_alloc(int heap_id, std::uint32_t flags, int size) {
  return size > 0 ? rpcmem_alloc2(heap_id, flags, static_cast<std::size_t>(size)) : nullptr;
}

ENTRY_POINT void rpcmem_free(void* memory) {
  dsp::memory().release(memory);
}

ENTRY_POINT int rpcmem_to_fd(void* memory) {
  return dsp::memory().fd_of(memory);
}

ENTRY_POINT int fastrpc_mmap(int domain, int fd, void* addr, int offset, std::size_t length,
                             enum fastrpc_map_flags flags) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  if (fails_now(Fault::kMapError)) return AEE_EFAILED;
  if (flags != FASTRPC_MAP_FD && flags != FASTRPC_MAP_FD_DELAYED) return AEE_EBADPARM;
  return dsp::memory().map(domain, fd, addr, offset, length);
}

ENTRY_POINT int fastrpc_munmap(int domain, int fd, void* /*addr*/, std::size_t length) {
  // The host's memory is given back even if the session is gone.
  const int result = dsp::memory().unmap(domain, fd, length);
  const int lost = dsp::lost_error();
  return lost != 0 ? lost : result;
}

ENTRY_POINT AEEResult dspqueue_create(int domain, std::uint32_t /*flags*/, std::uint32_t req_queue_size,
                                      std::uint32_t resp_queue_size, dspqueue_callback_t packet_callback,
                                      dspqueue_callback_t error_callback, void* /*callback_context*/,
                                      dspqueue_t* queue) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  // Upstream reads its answers itself; a host that waits for callbacks would wait for ever.
  if (packet_callback != nullptr || error_callback != nullptr) return AEE_EBADPARM;
  return dsp::create_queue(domain, req_queue_size, resp_queue_size, queue);
}

ENTRY_POINT AEEResult dspqueue_close(dspqueue_t queue) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  if (fails_now(Fault::kStopError)) return AEE_EFAILED;
  return dsp::close_queue(queue);
}

ENTRY_POINT AEEResult dspqueue_export(dspqueue_t queue, std::uint64_t* queue_id) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  return dsp::export_queue(queue, queue_id);
}

ENTRY_POINT AEEResult dspqueue_write(dspqueue_t queue, std::uint32_t /*flags*/, std::uint32_t num_buffers,
                                     struct dspqueue_buffer* buffers, std::uint32_t message_length,
                                     const std::uint8_t* message, std::uint32_t timeout_us) {
  const Fault fault = dsp::next_batch_fault();
  if (fault == Fault::kLost || fault == Fault::kLost2e) dsp::lose_session(fault);
  if (const int lost = dsp::known_loss(); lost != 0) return lost;
  if (fault == Fault::kHangWrite) dsp::hang_forever();
  if (fault == Fault::kWriteError) {
    dsp::fault_happened();
    return AEE_EFAILED;
  }
  const auto target = dsp::find_queue(queue);
  if (target == nullptr || message == nullptr || (num_buffers != 0 && buffers == nullptr)) return AEE_EBADPARM;
  dsp::Packet packet;
  packet.buffers.assign(buffers, buffers + num_buffers);
  packet.message.assign(message, message + message_length);
  packet.fault = fault;
  packet.delay_ms = dsp::delay_ms();
  return target->write(std::move(packet), timeout_us);
}

ENTRY_POINT AEEResult dspqueue_read(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                                    std::uint32_t* num_buffers, struct dspqueue_buffer* buffers,
                                    std::uint32_t max_message_length, std::uint32_t* message_length,
                                    std::uint8_t* message, std::uint32_t timeout_us) {
  if (const int lost = dsp::known_loss(); lost != 0) return lost;
  const auto source = dsp::find_queue(queue);
  if (source == nullptr || message == nullptr || (max_buffers != 0 && buffers == nullptr)) return AEE_EBADPARM;
  if (flags != nullptr) *flags = 0;
  return source->read(max_buffers, num_buffers, buffers, max_message_length, message_length, message, timeout_us);
}

ENTRY_POINT AEEResult dspqueue_read_noblock(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                                            std::uint32_t* num_buffers, struct dspqueue_buffer* buffers,
                                            std::uint32_t max_message_length, std::uint32_t* message_length,
                                            std::uint8_t* message) {
  return dspqueue_read(queue, flags, max_buffers, num_buffers, buffers, max_message_length, message_length, message, 0);
}

ENTRY_POINT int remote_handle64_open(const char* name, remote_handle64* handle) {
  const Fault fault = dsp::current_fault();
  if (fault != Fault::kLost && fault != Fault::kLost2e) dsp::restore_session();
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  if (fault == Fault::kOpenHang) dsp::hang_forever();
  if (fault == Fault::kOpenError) {
    dsp::fault_happened();
    return AEE_EUNABLETOLOAD;
  }
  if (fault == Fault::kSlowStart) {
    dsp::fault_happened();
    std::this_thread::sleep_for(std::chrono::milliseconds(dsp::delay_ms()));
  }
  return dsp::open_session(name, handle);
}

ENTRY_POINT int remote_handle64_invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  return dsp::invoke(handle, scalars, arguments);
}

ENTRY_POINT int remote_handle64_close(remote_handle64 handle) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  return dsp::close_session(handle);
}

ENTRY_POINT int remote_handle_control(std::uint32_t request, void* data, std::uint32_t data_length) {
  auto* capability = as<remote_dsp_capability>(data, data_length);
  if (request != DSPRPC_GET_DSP_INFO || capability == nullptr) return AEE_EUNSUPPORTEDAPI;
  if (capability->attribute_ID != ARCH_VER) return AEE_EUNSUPPORTEDAPI;
  capability->capability = kArchitecture;
  return AEE_SUCCESS;
}

ENTRY_POINT int remote_handle64_control(remote_handle64 /*handle*/, std::uint32_t request, void* data,
                                        std::uint32_t data_length) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  const bool latency =
      request == DSPRPC_CONTROL_LATENCY && as<remote_rpc_control_latency>(data, data_length) != nullptr;
  return latency ? AEE_SUCCESS : AEE_EUNSUPPORTEDAPI;
}

ENTRY_POINT int remote_session_control(std::uint32_t request, void* data, std::uint32_t data_length) {
  if (const int lost = dsp::lost_error(); lost != 0) return lost;
  switch (request) {
    case DSPRPC_CONTROL_UNSIGNED_MODULE:
      return as<remote_rpc_control_unsigned_module>(data, data_length) != nullptr ? AEE_SUCCESS : AEE_EBADPARM;
    case FASTRPC_RESERVE_NEW_SESSION: {
      auto* session = as<remote_rpc_reserve_new_session>(data, data_length);
      return session != nullptr ? reserve_session(*session) : AEE_EBADPARM;
    }
    case FASTRPC_GET_EFFECTIVE_DOMAIN_ID: {
      auto* domain = as<remote_rpc_effective_domain_id>(data, data_length);
      return domain != nullptr ? effective_domain(*domain) : AEE_EBADPARM;
    }
    case FASTRPC_GET_URI: {
      auto* uri = as<remote_rpc_get_uri>(data, data_length);
      return uri != nullptr ? module_uri(*uri) : AEE_EBADPARM;
    }
    default:
      return AEE_EUNSUPPORTEDAPI;
  }
}

ENTRY_POINT void kazeia_emulated_dsp_stats(kazeia_emulated_dsp_counters* counters) {
  *counters = dsp::counters().snapshot();
}
