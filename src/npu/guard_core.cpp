#include "npu/guard_core.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace kazeia::npu {
namespace {

// Codes that come from the DSP side carry an offset.
constexpr std::uint32_t kDspOffset = 0x80000400;
// What a V79 answers when the process behind the session is gone.
constexpr std::uint32_t kV79SessionGone = 0x2e;
// A second thread that never came back says that the driver holds a lock it will not give up.
constexpr int kMaxHungThreads = 2;

}  // namespace

std::string deadline_text(std::chrono::milliseconds deadline) {
  const std::int64_t ms = deadline.count();
  return ms >= 1000 && ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

FailureKind kind_of_driver_error(int error) {
  auto code = static_cast<std::uint32_t>(error);
  if (code >= kDspOffset && code < kDspOffset + 0x400) code -= kDspOffset;
  return code == AEE_ECONNRESET || code == kV79SessionGone ? FailureKind::kLost : FailureKind::kError;
}

bool is_timeout(int error) {
  return error == AEE_EEXPIRED || error == AEE_EWOULDBLOCK;
}

GuardCore::GuardCore(const DriverTable& table, const GuardOptions& options) : table_(table), options_(options) {
  driver_.rpcmem_alloc = *table.rpcmem_alloc;
  driver_.rpcmem_alloc2 = *table.rpcmem_alloc2;
  driver_.rpcmem_free = *table.rpcmem_free;
  driver_.rpcmem_to_fd = *table.rpcmem_to_fd;
  driver_.mmap = *table.mmap;
  driver_.munmap = *table.munmap;
  driver_.queue_create = *table.queue_create;
  driver_.queue_close = *table.queue_close;
  driver_.queue_export = *table.queue_export;
  driver_.queue_write = *table.queue_write;
  driver_.queue_read = *table.queue_read;
  driver_.queue_read_noblock = *table.queue_read_noblock;
  driver_.handle_open = *table.handle_open;
  driver_.handle_invoke = *table.handle_invoke;
  driver_.handle_close = *table.handle_close;
  driver_.handle_control = *table.handle_control;
  driver_.driver_control = *table.driver_control;
  driver_.session_control = *table.session_control;
}

GuardCore::~GuardCore() {
  const std::lock_guard calls(calls_);
  stop_reading();
  *table_.rpcmem_alloc = driver_.rpcmem_alloc;
  *table_.rpcmem_alloc2 = driver_.rpcmem_alloc2;
  *table_.rpcmem_free = driver_.rpcmem_free;
  *table_.rpcmem_to_fd = driver_.rpcmem_to_fd;
  *table_.mmap = driver_.mmap;
  *table_.munmap = driver_.munmap;
  *table_.queue_create = driver_.queue_create;
  *table_.queue_close = driver_.queue_close;
  *table_.queue_export = driver_.queue_export;
  *table_.queue_write = driver_.queue_write;
  *table_.queue_read = driver_.queue_read;
  *table_.queue_read_noblock = driver_.queue_read_noblock;
  *table_.handle_open = driver_.handle_open;
  *table_.handle_invoke = driver_.handle_invoke;
  *table_.handle_close = driver_.handle_close;
  *table_.handle_control = driver_.handle_control;
  *table_.driver_control = driver_.driver_control;
  *table_.session_control = driver_.session_control;
}

GuardStatus GuardCore::status() const {
  const std::lock_guard lock(state_);
  GuardStatus status = status_;
  status.device_may_still_write = failed() && on_device_.load() > 0;
  return status;
}

void GuardCore::declare_failed(FailureKind kind, std::string reason) {
  fail(kind, std::move(reason));
  const std::lock_guard calls(calls_);
  settle();
}

std::chrono::milliseconds GuardCore::limit() const {
  return std::chrono::milliseconds(in_session() ? options_.deadline_ms : options_.start_deadline_ms);
}

bool GuardCore::in_session() const {
  const std::lock_guard lock(state_);
  return !sessions_.empty();
}

bool GuardCore::forward(std::string_view what, std::chrono::milliseconds limit, std::function<void()> call) {
  if (hung_threads_ >= kMaxHungThreads || !stop_reading()) return false;
  const DriverThread::Ticket ticket = thread_.post(std::move(call));
  if (ticket == nullptr) {
    fail(FailureKind::kError, fmt::format("no thread could be made to {}", what));
    return false;
  }
  if (thread_.wait(ticket, limit)) return true;
  abandon_thread();
  silent(what, limit);
  return false;
}

void GuardCore::abandon_thread() {
  thread_.abandon();
  ++hung_threads_;
}

void GuardCore::silent(std::string_view what, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(state_);
    silent_ = true;
  }
  fail(in_session() ? FailureKind::kSilent : FailureKind::kStart,
       fmt::format("the NPU's driver was asked to {} and did not answer within {}", what, deadline_text(limit)));
}

void GuardCore::fail(FailureKind kind, std::string reason) {
  {
    const std::lock_guard lock(state_);
    if (failed()) return;
    status_.kind = kind;
    status_.reason = reason;
    if (kind == FailureKind::kLost) on_device_.store(0);  // the process that ran them is gone
    failed_.store(true, std::memory_order_release);
  }
  log(LogLevel::kInfo, fmt::format("npu: {} ({})", reason, failure_kind_name(kind)));
}

void GuardCore::refuse(FailureKind kind, std::string reason) {
  log(LogLevel::kInfo, fmt::format("npu: {} ({})", reason, failure_kind_name(kind)));
  const std::lock_guard lock(state_);
  if (failed()) return;
  status_.kind = kind;
  status_.reason = std::move(reason);
}

int GuardCore::report(FailureKind kind, std::string_view what, int error) {
  std::string reason =
      fmt::format("the NPU's driver could not {} (error {:#x})", what, static_cast<std::uint32_t>(error));
  if (!in_session()) {
    refuse(FailureKind::kStart, std::move(reason));
    return error;
  }
  fail(kind_of_driver_error(error) == FailureKind::kLost ? FailureKind::kLost : kind, std::move(reason));
  settle();
  return AEE_SUCCESS;
}

bool GuardCore::keeps_memory() const {
  const std::lock_guard lock(state_);
  return failed() && (silent_ || on_device_.load() > 0);
}

}  // namespace kazeia::npu
