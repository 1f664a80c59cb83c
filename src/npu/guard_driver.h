// The driver's entry points as upstream's host code calls them, and the table of the variables it calls them through.
// The types are those of upstream's htp-drv.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <AEEStdErr.h>
#include <dspqueue.h>
#include <remote.h>
#include <rpcmem.h>

namespace kazeia::npu {

using RpcmemAlloc = void* (*)(int heap, std::uint32_t flags, int bytes);
using RpcmemAlloc2 = void* (*)(int heap, std::uint32_t flags, std::size_t bytes);
using RpcmemFree = void (*)(void* memory);
using RpcmemToFd = int (*)(void* memory);
using FastrpcMmap = int (*)(int domain, int fd, void* address, int offset, std::size_t bytes, fastrpc_map_flags flags);
using FastrpcMunmap = int (*)(int domain, int fd, void* address, std::size_t bytes);
using QueueCreate = AEEResult (*)(int domain, std::uint32_t flags, std::uint32_t request_bytes,
                                  std::uint32_t response_bytes, dspqueue_callback_t packet, dspqueue_callback_t error,
                                  void* context, dspqueue_t* queue);
using QueueClose = AEEResult (*)(dspqueue_t queue);
using QueueExport = AEEResult (*)(dspqueue_t queue, std::uint64_t* id);
using QueueWrite = AEEResult (*)(dspqueue_t queue, std::uint32_t flags, std::uint32_t n_buffers,
                                 dspqueue_buffer* buffers, std::uint32_t length, const std::uint8_t* message,
                                 std::uint32_t timeout_us);
using QueueRead = AEEResult (*)(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                                std::uint32_t* n_buffers, dspqueue_buffer* buffers, std::uint32_t max_length,
                                std::uint32_t* length, std::uint8_t* message, std::uint32_t timeout_us);
using QueueReadNoblock = AEEResult (*)(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                                       std::uint32_t* n_buffers, dspqueue_buffer* buffers, std::uint32_t max_length,
                                       std::uint32_t* length, std::uint8_t* message);
using HandleOpen = int (*)(const char* uri, remote_handle64* handle);
using HandleInvoke = int (*)(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments);
using HandleClose = int (*)(remote_handle handle);  // 32 bits, as upstream declares it
using DriverControl = int (*)(std::uint32_t request, void* data, std::uint32_t bytes);
using HandleControl = int (*)(remote_handle64 handle, std::uint32_t request, void* data, std::uint32_t bytes);

// What a driver may lack: older ones have no rpcmem_alloc2, and not every platform has a read without a wait.
template <typename Function>
inline constexpr bool kIsOptional =
    std::is_same_v<Function, RpcmemAlloc2> || std::is_same_v<Function, QueueReadNoblock>;

template <template <typename> class Slot>
struct DriverEntries {
  Slot<RpcmemAlloc> rpcmem_alloc{};
  Slot<RpcmemAlloc2> rpcmem_alloc2{};
  Slot<RpcmemFree> rpcmem_free{};
  Slot<RpcmemToFd> rpcmem_to_fd{};
  Slot<FastrpcMmap> mmap{};
  Slot<FastrpcMunmap> munmap{};
  Slot<QueueCreate> queue_create{};
  Slot<QueueClose> queue_close{};
  Slot<QueueExport> queue_export{};
  Slot<QueueWrite> queue_write{};
  Slot<QueueRead> queue_read{};
  Slot<QueueReadNoblock> queue_read_noblock{};
  Slot<HandleOpen> handle_open{};
  Slot<HandleInvoke> handle_invoke{};
  Slot<HandleClose> handle_close{};
  Slot<HandleControl> handle_control{};
  Slot<DriverControl> driver_control{};   // remote_handle_control
  Slot<DriverControl> session_control{};  // remote_session_control
};

// Calls `visit` once per entry, with that entry of each of `sets`: anything that has the members of DriverEntries.
template <typename Visit, typename... Sets>
void for_each_entry(const Visit& visit, Sets&... sets) {
  visit(sets.rpcmem_alloc...);
  visit(sets.rpcmem_alloc2...);
  visit(sets.rpcmem_free...);
  visit(sets.rpcmem_to_fd...);
  visit(sets.mmap...);
  visit(sets.munmap...);
  visit(sets.queue_create...);
  visit(sets.queue_close...);
  visit(sets.queue_export...);
  visit(sets.queue_write...);
  visit(sets.queue_read...);
  visit(sets.queue_read_noblock...);
  visit(sets.handle_open...);
  visit(sets.handle_invoke...);
  visit(sets.handle_close...);
  visit(sets.handle_control...);
  visit(sets.driver_control...);
  visit(sets.session_control...);
}

template <typename Function>
using DriverFunction = Function;
template <typename Function>
using DriverVariable = Function*;

using DriverFunctions = DriverEntries<DriverFunction>;
// Pointers to the variables; all must be set.
struct DriverTable : DriverEntries<DriverVariable> {};

}  // namespace kazeia::npu
