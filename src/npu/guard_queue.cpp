// Batches and their answers: the device's while it is well, the guard's afterwards.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "npu/guard_read.h"

namespace kazeia::npu {

GuardCore::Queue& GuardCore::queue(dspqueue_t id) {
  const std::lock_guard lock(state_);
  return queues_[id];
}

AEEResult GuardCore::create_queue(int domain, std::uint32_t flags, std::uint32_t request_bytes,
                                  std::uint32_t response_bytes, dspqueue_callback_t packet, dspqueue_callback_t error,
                                  void* context, dspqueue_t* queue_out) {
  struct Creation {
    dspqueue_t queue = nullptr;
    AEEResult error = AEE_EFAILED;
  };
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_ECONNRESET;
  auto creation = std::make_shared<Creation>();
  const bool answered = forward(
      "create a queue", std::chrono::milliseconds(options_.start_deadline_ms), [=, call = driver_.queue_create] {
        creation->error = call(domain, flags, request_bytes, response_bytes, packet, error, context, &creation->queue);
      });
  if (!answered) return AEE_EEXPIRED;
  if (creation->error == AEE_SUCCESS) {
    *queue_out = creation->queue;
    queue(creation->queue);
  } else {
    refuse_start("create a queue", creation->error);
  }
  return creation->error;
}

AEEResult GuardCore::export_queue(dspqueue_t id, std::uint64_t* number) {
  struct Export {
    std::uint64_t number = 0;
    AEEResult error = AEE_EFAILED;
  };
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_ECONNRESET;
  auto exported = std::make_shared<Export>();
  const bool answered =
      forward("export a queue", std::chrono::milliseconds(options_.start_deadline_ms),
              [exported, call = driver_.queue_export, id] { exported->error = call(id, &exported->number); });
  if (!answered) return AEE_EEXPIRED;
  if (exported->error == AEE_SUCCESS) {
    *number = exported->number;
  } else {
    refuse_start("export a queue", exported->error);
  }
  return exported->error;
}

AEEResult GuardCore::close_queue(dspqueue_t id) {
  const std::lock_guard calls(calls_);
  if (!failed()) {
    auto error = std::make_shared<AEEResult>(AEE_EFAILED);
    const bool answered =
        forward("close a queue", limit(), [error, call = driver_.queue_close, id] { *error = call(id); });
    if (answered && *error != AEE_SUCCESS) report(FailureKind::kError, "close a queue", *error);
  }
  const std::lock_guard lock(state_);
  const auto found = queues_.find(id);
  if (found == queues_.end()) return AEE_SUCCESS;
  // After a failure what the device was given and did not answer stays counted.
  if (!failed()) on_device_ -= found->second.on_device;
  queues_.erase(found);
  return AEE_SUCCESS;  // anything else aborts upstream
}

AEEResult GuardCore::write(dspqueue_t id, std::uint32_t flags, std::uint32_t n_buffers, const dspqueue_buffer* buffers,
                           std::uint32_t length, const std::uint8_t* message, std::uint32_t timeout_us) {
  if (message == nullptr || buffers == nullptr || n_buffers != 1 || length != sizeof(htp_opbatch_req))
    return AEE_EBADPARM;  // not a batch: upstream as we know it writes nothing else
  struct Write {
    dspqueue_buffer buffer{};
    std::array<std::uint8_t, sizeof(htp_opbatch_req)> message{};
    int error = AEE_EFAILED;
  };
  htp_opbatch_req request;
  std::memcpy(&request, message, sizeof(request));
  {
    const std::lock_guard lock(state_);
    queues_[id].unanswered.push_back({request.seq, request.n_bufs, request.n_tensors, request.n_ops, buffers[0]});
    ++status_.batches_written;
  }
  if (failed()) return AEE_SUCCESS;
  const std::lock_guard calls(calls_);
  if (failed()) return AEE_SUCCESS;

  auto write = std::make_shared<Write>();
  write->buffer = buffers[0];
  std::copy_n(message, write->message.size(), write->message.begin());
  Queue& queue = this->queue(id);
  ++queue.on_device;
  ++on_device_;
  // The queue holds twice what upstream keeps under way: full means that the device does not read.
  const std::chrono::milliseconds deadline(options_.deadline_ms);
  const auto slice =
      static_cast<std::uint32_t>(std::min<std::int64_t>(timeout_us, std::chrono::microseconds(deadline).count()));
  const bool answered =
      forward("take work", deadline + kGrace, [write, call = driver_.queue_write, id, flags, slice, deadline] {
        const auto begin = std::chrono::steady_clock::now();
        do {
          write->error = call(id, flags, 1, &write->buffer, sizeof(htp_opbatch_req), write->message.data(), slice);
        } while (is_timeout(write->error) && std::chrono::steady_clock::now() - begin < deadline);
      });
  if (!answered || write->error == AEE_SUCCESS) return AEE_SUCCESS;
  device_answered(queue);  // it never got this one
  if (is_timeout(write->error)) {
    silent("take work", deadline);
  } else {
    fail(kind_of_driver_error(write->error), fmt::format("the NPU's queue refused batch {} (error {:#x})", request.seq,
                                                         static_cast<std::uint32_t>(write->error)));
    settle();
  }
  return AEE_SUCCESS;
}

void GuardCore::device_answered(Queue& queue) {
  if (queue.on_device == 0) return;
  --queue.on_device;
  if (on_device_.load() > 0) --on_device_;
}

AEEResult GuardCore::read(dspqueue_t id, std::uint32_t* flags, std::uint32_t max_buffers, std::uint32_t* n_buffers,
                          dspqueue_buffer* buffers, std::uint32_t max_length, std::uint32_t* length,
                          std::uint8_t* message, std::uint32_t timeout_us) {
  if (message == nullptr || length == nullptr || buffers == nullptr || n_buffers == nullptr || max_buffers < 1 ||
      max_length < sizeof(htp_opbatch_rsp))
    return AEE_EBADPARM;
  Queue& queue = this->queue(id);
  htp_opbatch_rsp response{};
  bool from_device = false;
  if (!failed()) {
    const std::lock_guard calls(calls_);
    if (!failed()) {
      const Look found = look(id, queue, timeout_us);
      if (found == Look::kNothing) return timeout_us == 0 ? AEE_EWOULDBLOCK : AEE_EEXPIRED;
      if (found == Look::kAnswer) {
        const std::shared_ptr<Read> read = std::exchange(queue.reading, nullptr);
        from_device = accept(queue, *read);
        response = read->answer();
      }
      if (!from_device) settle();
    }
  }
  const std::lock_guard lock(state_);
  if (queue.unanswered.empty()) return AEE_EWOULDBLOCK;
  const Batch batch = queue.unanswered.front();
  queue.unanswered.pop_front();
  if (from_device) {
    ++status_.batches_answered;
  } else {
    response = {};
    response.seq = batch.number;
    response.status = HTP_STATUS_OK;
    response.n_bufs = batch.n_buffers;
    response.n_tensors = batch.n_tensors;
    response.n_ops = batch.n_ops;
    ++status_.batches_answered_in_its_place;
  }
  if (flags != nullptr) *flags = 0;
  *n_buffers = 1;
  // The block that was written, not the one answered with: upstream reads profiles from its address.
  buffers[0] = batch.block;
  *length = sizeof(response);
  std::memcpy(message, &response, sizeof(response));
  return AEE_SUCCESS;
}

}  // namespace kazeia::npu
