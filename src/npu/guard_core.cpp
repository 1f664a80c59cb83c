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

std::string failed_call_text(std::string_view what, int error) {
  return fmt::format("the NPU's driver could not {} (error {:#x})", what, static_cast<std::uint32_t>(error));
}

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
  for_each_entry([](const auto& variable, auto& function) { function = *variable; }, table_, driver_);
}

GuardCore::~GuardCore() {
  const std::lock_guard calls(calls_);
  stop_reading();
  for_each_entry([](const auto& variable, const auto& function) { *variable = function; }, table_, driver_);
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

void GuardCore::refuse_start(std::string_view what, int error) {
  refuse(FailureKind::kStart, failed_call_text(what, error));
}

int GuardCore::report(FailureKind kind, std::string_view what, int error) {
  if (!in_session()) {
    refuse_start(what, error);
    return error;
  }
  fail(kind_of_driver_error(error) == FailureKind::kLost ? FailureKind::kLost : kind, failed_call_text(what, error));
  settle();
  return AEE_SUCCESS;
}

bool GuardCore::keeps_memory() const {
  const std::lock_guard lock(state_);
  return failed() && (silent_ || on_device_.load() > 0);
}

}  // namespace kazeia::npu
