#include "npu/guard.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "npu/guard_core.h"

namespace kazeia::npu {
namespace {

// Never destroyed at exit: a driver call that hangs, and upstream's own static destructors, come after.
std::atomic<GuardCore*> core_in_use{nullptr};
std::mutex installation;

GuardCore& core() {
  return *core_in_use.load(std::memory_order_acquire);
}

// What upstream calls instead of the driver, one function per entry.
void* guarded_alloc(int heap, std::uint32_t flags, int bytes) {
  const RpcmemAlloc call = core().driver().rpcmem_alloc;
  return core().allocate(bytes < 0 ? 0 : static_cast<std::uint64_t>(bytes), [=] { return call(heap, flags, bytes); });
}

void* guarded_alloc2(int heap, std::uint32_t flags, std::size_t bytes) {
  const RpcmemAlloc2 call = core().driver().rpcmem_alloc2;
  return core().allocate(bytes, [=] { return call(heap, flags, bytes); });
}

void guarded_free(void* memory) {
  core().free(memory);
}

int guarded_to_fd(void* memory) {
  return core().to_fd(memory);
}

int guarded_mmap(int domain, int fd, void* address, int offset, std::size_t bytes, fastrpc_map_flags flags) {
  return core().map(domain, fd, address, offset, bytes, flags);
}

int guarded_munmap(int domain, int fd, void* address, std::size_t bytes) {
  return core().unmap(domain, fd, address, bytes);
}

AEEResult guarded_queue_create(int domain, std::uint32_t flags, std::uint32_t request_bytes,
                               std::uint32_t response_bytes, dspqueue_callback_t packet, dspqueue_callback_t error,
                               void* context, dspqueue_t* queue) {
  return core().create_queue(domain, flags, request_bytes, response_bytes, packet, error, context, queue);
}

AEEResult guarded_queue_close(dspqueue_t queue) {
  return core().close_queue(queue);
}

AEEResult guarded_queue_export(dspqueue_t queue, std::uint64_t* id) {
  return core().export_queue(queue, id);
}

AEEResult guarded_queue_write(dspqueue_t queue, std::uint32_t flags, std::uint32_t n_buffers, dspqueue_buffer* buffers,
                              std::uint32_t length, const std::uint8_t* message, std::uint32_t timeout_us) {
  return core().write(queue, flags, n_buffers, buffers, length, message, timeout_us);
}

AEEResult guarded_queue_read(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                             std::uint32_t* n_buffers, dspqueue_buffer* buffers, std::uint32_t max_length,
                             std::uint32_t* length, std::uint8_t* message, std::uint32_t timeout_us) {
  return core().read(queue, flags, max_buffers, n_buffers, buffers, max_length, length, message, timeout_us);
}

AEEResult guarded_queue_read_noblock(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers,
                                     std::uint32_t* n_buffers, dspqueue_buffer* buffers, std::uint32_t max_length,
                                     std::uint32_t* length, std::uint8_t* message) {
  return core().read(queue, flags, max_buffers, n_buffers, buffers, max_length, length, message, 0);
}

int guarded_open(const char* uri, remote_handle64* handle) {
  return core().open(uri, handle);
}

int guarded_invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments) {
  return core().invoke(handle, scalars, arguments);
}

int guarded_close(remote_handle handle) {
  return core().close(handle);
}

int guarded_handle_control(remote_handle64 handle, std::uint32_t request, void* data, std::uint32_t bytes) {
  return core().handle_control(handle, request, data, bytes);
}

int guarded_driver_control(std::uint32_t request, void* data, std::uint32_t bytes) {
  return core().driver_control(request, data, bytes);
}

int guarded_session_control(std::uint32_t request, void* data, std::uint32_t bytes) {
  return core().session_control(request, data, bytes);
}

constexpr DriverFunctions kGuarded{
    .rpcmem_alloc = guarded_alloc,
    .rpcmem_alloc2 = guarded_alloc2,
    .rpcmem_free = guarded_free,
    .rpcmem_to_fd = guarded_to_fd,
    .mmap = guarded_mmap,
    .munmap = guarded_munmap,
    .queue_create = guarded_queue_create,
    .queue_close = guarded_queue_close,
    .queue_export = guarded_queue_export,
    .queue_write = guarded_queue_write,
    .queue_read = guarded_queue_read,
    .queue_read_noblock = guarded_queue_read_noblock,
    .handle_open = guarded_open,
    .handle_invoke = guarded_invoke,
    .handle_close = guarded_close,
    .handle_control = guarded_handle_control,
    .driver_control = guarded_driver_control,
    .session_control = guarded_session_control,
};

bool is_loaded(const DriverTable& table) {
  bool all = true;
  for_each_entry(
      [&all]<typename Function>(Function* variable) { all = all && (*variable != nullptr || kIsOptional<Function>); },
      table);
  return all;
}

void put_in_front(const DriverTable& table) {
  for_each_entry(
      [](const auto& variable, const auto& guarded) {
        if (*variable != nullptr) *variable = guarded;
      },
      table, kGuarded);
}

void read_milliseconds(const char* name, std::int64_t& milliseconds) {
  constexpr std::int64_t kHour = 3'600'000;
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  std::int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end && value >= 1 && value <= kHour) {
    milliseconds = value;
    return;
  }
  log(LogLevel::kWarning, fmt::format("{}='{}' is not a number of milliseconds between 1 and {}: {} is used", name,
                                      text, kHour, milliseconds));
}

}  // namespace

std::string_view failure_kind_name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kNone:
      return "none";
    case FailureKind::kError:
      return "error";
    case FailureKind::kLost:
      return "lost";
    case FailureKind::kSilent:
      return "silent";
    case FailureKind::kMap:
      return "map";
    case FailureKind::kGarbage:
      return "garbage";
    case FailureKind::kOutOfMemory:
      return "out of memory";
    case FailureKind::kStart:
      return "start";
  }
  return "none";
}

GuardOptions with_environment(GuardOptions options) {
  read_milliseconds("KAZEIA_NPU_DEADLINE_MS", options.deadline_ms);
  read_milliseconds("KAZEIA_NPU_START_DEADLINE_MS", options.start_deadline_ms);
  return options;
}

Status Guard::install_over(const DriverTable& table, const GuardOptions& options) {
  const std::lock_guard lock(installation);
  if (core_in_use.load() != nullptr) return {};
  if (!is_loaded(table)) {
    return Error(ErrorCode::kEngine, "the NPU's driver is not loaded", "Check that libcdsprpc.so can be found");
  }
  core_in_use.store(std::make_unique<GuardCore>(table, options).release(), std::memory_order_release);
  put_in_front(table);
  return {};
}

void Guard::uninstall() {
  const std::lock_guard lock(installation);
  // Its destructor puts the driver's functions back.
  const std::unique_ptr<GuardCore> core(core_in_use.exchange(nullptr));
}

GuardStatus Guard::status() {
  const GuardCore* core = core_in_use.load(std::memory_order_acquire);
  return core == nullptr ? GuardStatus{} : core->status();
}

bool Guard::failed() noexcept {
  const GuardCore* core = core_in_use.load(std::memory_order_acquire);
  return core != nullptr && core->failed();
}

void Guard::declare_failed(FailureKind kind, std::string reason) {
  GuardCore* core = core_in_use.load(std::memory_order_acquire);
  if (core != nullptr) core->declare_failed(kind, std::move(reason));
}

}  // namespace kazeia::npu
