// Waiting for the device: with a deadline, without a thread of upstream's ever being inside the driver.
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "npu/guard_read.h"

namespace kazeia::npu {
namespace {

using namespace std::chrono_literals;

std::string_view device_status_name(std::uint32_t status) {
  switch (status) {
    case HTP_STATUS_INTERNAL_ERR:
      return "internal error";
    case HTP_STATUS_NO_SUPPORT:
      return "unsupported operation";
    case HTP_STATUS_INVAL_PARAMS:
      return "invalid parameters";
    case HTP_STATUS_VTCM_TOO_SMALL:
      return "too little on-chip memory";
    default:
      return "unknown status";
  }
}

}  // namespace

bool GuardCore::start_reading(dspqueue_t id, Queue& queue, std::chrono::microseconds slice) {
  if (!stop_reading()) return false;
  auto read = std::make_shared<Read>();
  const auto timeout_us = static_cast<std::uint32_t>(slice.count());
  read->call = thread_.post([read, id, timeout_us, call = driver_.queue_read] {
    do {
      read->error = call(id, &read->flags, static_cast<std::uint32_t>(read->buffers.size()), &read->n_buffers,
                         read->buffers.data(), static_cast<std::uint32_t>(read->message.size()), &read->length,
                         read->message.data(), timeout_us);
      // Upstream polls with no timeout at all; it must not starve whoever works on the answer.
      if (is_timeout(read->error)) std::this_thread::yield();
    } while (is_timeout(read->error) && !read->stop.load(std::memory_order_relaxed));
  });
  if (read->call == nullptr) {
    fail(FailureKind::kError, "no thread could be made to read the NPU's answers");
    return false;
  }
  queue.reading = std::move(read);
  return true;
}

bool GuardCore::stop_reading() {
  std::vector<Queue*> reading;
  {
    const std::lock_guard lock(state_);
    for (auto& [id, queue] : queues_) {
      if (queue.reading != nullptr && !queue.reading->call->finished()) reading.push_back(&queue);
    }
  }
  for (Queue* queue : reading) {
    queue->reading->stop.store(true, std::memory_order_relaxed);
    if (!thread_.wait(queue->reading->call, kSlice + kGrace)) {
      queue->reading = nullptr;
      abandon_thread();
      silent("answer", kGrace);
      return false;
    }
    if (is_timeout(queue->reading->error)) queue->reading = nullptr;
  }
  return true;
}

GuardCore::Look GuardCore::look(dspqueue_t id, Queue& queue, std::uint32_t timeout_us) {
  using Clock = std::chrono::steady_clock;
  {
    const std::lock_guard lock(state_);
    if (queue.unanswered.empty()) return Look::kNothing;
  }
  if (queue.reading == nullptr) {
    if (!start_reading(id, queue, std::min(kSlice, std::chrono::microseconds(timeout_us)))) return Look::kFailed;
    queue.last_look = Clock::now();
  }
  const auto begin = Clock::now();
  const std::chrono::microseconds timeout(timeout_us);
  for (;;) {
    const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    const auto step = std::clamp(timeout - spent, 0us, kSlice);
    if (thread_.wait(queue.reading->call, step)) {
      queue.waited = 0us;
      return Look::kAnswer;
    }
    if (failed()) return Look::kFailed;
    // Only time spent waiting counts, and a process that was stopped has waited one step.
    const auto now = Clock::now();
    const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now - queue.last_look);
    if (since >= 1ms) {  // polls come faster than a microsecond, and would count as nothing
      queue.waited += std::min(since, 2 * kSlice);
      queue.last_look = now;
    }
    if (queue.waited >= std::chrono::milliseconds(options_.deadline_ms)) return give_up(queue);
    if (spent >= timeout) {
      if (timeout_us == 0) std::this_thread::yield();
      return Look::kNothing;
    }
  }
}

GuardCore::Look GuardCore::give_up(Queue& queue) {
  queue.reading->stop.store(true, std::memory_order_relaxed);
  const bool returned = thread_.wait(queue.reading->call, kSlice + kGrace);
  if (returned && !is_timeout(queue.reading->error)) return Look::kAnswer;  // at the last moment
  queue.reading = nullptr;
  if (!returned) abandon_thread();
  {
    const std::lock_guard lock(state_);
    silent_ = true;
  }
  fail(FailureKind::kSilent, fmt::format("the NPU has answered nothing for {} while it had work",
                                         deadline_text(std::chrono::milliseconds(options_.deadline_ms))));
  return Look::kFailed;
}

bool GuardCore::accept(Queue& queue, const Read& read) {
  if (read.error != AEE_SUCCESS) {
    fail(kind_of_driver_error(read.error),
         fmt::format("reading the NPU's answer failed (error {:#x})", static_cast<std::uint32_t>(read.error)));
    return false;
  }
  device_answered(queue);
  Batch due;
  {
    const std::lock_guard lock(state_);
    due = queue.unanswered.front();
  }
  if (read.length != sizeof(htp_opbatch_rsp) || read.n_buffers != 1) {
    fail(FailureKind::kError, fmt::format("the NPU answered batch {} with {} bytes and {} buffers instead of {} and 1",
                                          due.number, read.length, read.n_buffers, sizeof(htp_opbatch_rsp)));
    return false;
  }
  const htp_opbatch_rsp response = read.answer();
  if (response.seq != due.number) {
    fail(FailureKind::kError, fmt::format("the NPU answered batch {} while {} was due", response.seq, due.number));
    return false;
  }
  if (response.status != HTP_STATUS_OK) {
    fail(FailureKind::kError, fmt::format("the NPU reported '{}' ({}) for batch {}",
                                          device_status_name(response.status), response.status, due.number));
    return false;
  }
  if (response.n_bufs != due.n_buffers || response.n_tensors != due.n_tensors || response.n_ops != due.n_ops) {
    fail(FailureKind::kError, fmt::format("the NPU answered batch {} with the counts of another one", due.number));
    return false;
  }
  return true;
}

void GuardCore::settle() {
  std::vector<std::pair<dspqueue_t, Queue*>> busy;
  {
    const std::lock_guard lock(state_);
    if (silent_ || on_device_.load() == 0) return;
    for (auto& [id, queue] : queues_) {
      if (queue.on_device > 0) busy.emplace_back(id, &queue);
    }
  }
  const std::chrono::milliseconds deadline(options_.deadline_ms);
  for (auto& [id, queue] : busy) {
    while (queue->on_device > 0) {
      if (queue->reading == nullptr && !start_reading(id, *queue, kSlice)) return;
      const std::shared_ptr<Read> read = queue->reading;
      if (!thread_.wait(read->call, deadline)) {
        // What failed first is kept as the reason; that the device fell silent as well decides what may be freed.
        read->stop.store(true, std::memory_order_relaxed);
        if (!thread_.wait(read->call, kSlice + kGrace)) abandon_thread();
        if (!read->call->finished() || is_timeout(read->error)) {
          queue->reading = nullptr;
          const std::lock_guard lock(state_);
          silent_ = true;
          return;
        }
      }
      queue->reading = nullptr;
      if (read->error == AEE_SUCCESS) {
        device_answered(*queue);
      } else if (is_timeout(read->error)) {
        continue;
      } else {
        if (kind_of_driver_error(read->error) == FailureKind::kLost) on_device_.store(0);
        return;
      }
    }
  }
}

}  // namespace kazeia::npu
