#include "emulated_dsp/queue.h"

#include <AEEStdErr.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulated_dsp/batch.h"
#include "emulated_dsp/corruption.h"
#include "emulated_dsp/counters.h"

namespace kazeia::emulated_dsp {
namespace {

using Clock = std::chrono::steady_clock;

void complain(const std::string& what) {
  std::fprintf(stderr, "emulated DSP: %s\n", what.c_str());
}

// Waits on `changed` until `ready`; false: not within `timeout_us`.
template <typename Ready>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, std::uint32_t timeout_us,
              const Ready& ready) {
  if (timeout_us == DSPQUEUE_TIMEOUT_NONE) {
    changed.wait(lock, ready);
    return true;
  }
  return changed.wait_for(lock, std::chrono::microseconds(timeout_us), ready);
}

}  // namespace

Queue::Queue(int domain, std::size_t request_bytes, std::size_t answer_bytes)
    : domain_(domain), request_bytes_(request_bytes), answer_bytes_(answer_bytes) {}

Queue::~Queue() {
  stop();
}

int Queue::write(Packet packet, std::uint32_t timeout_us) {
  for (const dspqueue_buffer& buffer : packet.buffers) {
    const auto memory_behind = memory().visible(domain_, static_cast<int>(buffer.fd));
    if (!memory_behind || std::size_t{buffer.offset} + buffer.size > memory_behind->size) return AEE_EBADPARM;
  }
  std::unique_lock lock(mutex_);
  const std::size_t bytes = packet.bytes();
  if (bytes > request_bytes_) return AEE_EBADPARM;
  if (!wait_for(changed_, lock, timeout_us, [&] { return requests_size_ + bytes <= request_bytes_; })) {
    return AEE_EEXPIRED;
  }
  requests_size_ += bytes;
  requests_.push_back(std::move(packet));
  ++counters().batches;
  changed_.notify_all();
  return AEE_SUCCESS;
}

int Queue::read(std::uint32_t max_buffers, std::uint32_t* num_buffers, dspqueue_buffer* buffers,
                std::uint32_t max_message_length, std::uint32_t* message_length, std::uint8_t* message,
                std::uint32_t timeout_us) {
  std::unique_lock lock(mutex_);
  if (!wait_for(changed_, lock, timeout_us, [this] { return !answers_.empty(); })) {
    return timeout_us == 0 ? AEE_EWOULDBLOCK : AEE_EEXPIRED;
  }
  const Packet& first = answers_.front();
  if (first.fault == Fault::kHangRead) {
    lock.unlock();
    hang_forever();
  }
  if (first.fault == Fault::kReadError) {
    fault_happened();
    answers_.pop_front();
    return AEE_EFAILED;
  }
  if (first.buffers.size() > max_buffers || first.message.size() > max_message_length) return AEE_EBADPARM;
  if (num_buffers != nullptr) *num_buffers = static_cast<std::uint32_t>(first.buffers.size());
  if (message_length != nullptr) *message_length = static_cast<std::uint32_t>(first.message.size());
  std::copy(first.buffers.begin(), first.buffers.end(), buffers);
  std::copy(first.message.begin(), first.message.end(), message);
  answers_.pop_front();
  ++counters().answers;
  changed_.notify_all();
  return AEE_SUCCESS;
}

int Queue::start(std::uint64_t max_vmem) {
  const std::lock_guard lock(mutex_);
  if (running_) return AEE_EFAILED;
  running_ = true;
  max_vmem_ = max_vmem;
  executor_ = std::make_unique<Executor>(executor_threads());
  worker_ = std::thread([this] { work(); });
  return AEE_SUCCESS;
}

void Queue::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    changed_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

void Queue::keep(int fd) {
  const auto buffer = memory().visible(domain_, fd);
  const std::lock_guard lock(mutex_);
  if (buffer) kept_[fd] = {buffer->serial, buffer->size};
}

void Queue::let_go(int fd) {
  const std::lock_guard lock(mutex_);
  kept_.erase(fd);
  ++counters().dsp_release_calls;
}

void Queue::profile(bool on) {
  const std::lock_guard lock(mutex_);
  profiled_ = on;
}

void Queue::work() {
  while (true) {
    Packet request;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !running_ || !requests_.empty(); });
      if (!running_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
      requests_size_ -= request.bytes();
      changed_.notify_all();
      if (request.fault == Fault::kHang) {
        fault_happened();
        hung_ = true;
      }
      if (hung_) continue;  // a DSP that hangs takes what still fits into its queue and never says a word
    }
    if (request.fault == Fault::kLate) {
      fault_happened();
      std::this_thread::sleep_for(std::chrono::milliseconds(request.delay_ms));
    }
    Packet response = answer(request);
    if (response.message.empty()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      std::size_t waiting = response.bytes();
      for (const Packet& packet : answers_) waiting += packet.bytes();
      return !running_ || waiting <= answer_bytes_ || answers_.empty();
    });
    if (!running_) return;
    answers_.push_back(std::move(response));
    changed_.notify_all();
  }
}

Packet Queue::answer(const Packet& packet) {
  const auto begin = Clock::now();
  Packet response;
  response.fault = packet.fault;
  if (packet.message.size() < sizeof(htp_opbatch_req) || packet.buffers.size() != 1) {
    ++counters().dropped_packets;
    complain("a packet that is no batch request was dropped");
    return response;
  }
  htp_opbatch_req request;
  std::memcpy(&request, packet.message.data(), sizeof(request));
  dspqueue_buffer buffer = packet.buffers[0];

  htp_status status = HTP_STATUS_INVAL_PARAMS;
  const auto block = memory().visible(domain_, static_cast<int>(buffer.fd));
  if (!block || std::size_t{buffer.offset} + buffer.size > block->size || block_bytes(request) > buffer.size) {
    complain("a batch whose records do not fit their block");
  } else if (packet.fault == Fault::kError) {
    fault_happened();
    status = HTP_STATUS_INTERNAL_ERR;
  } else {
    status = execute(request, block->base + buffer.offset, packet.fault);
  }
  if (status != HTP_STATUS_OK) ++counters().failed_batches;

  htp_opbatch_rsp answer{};
  answer.seq = request.seq + (packet.fault == Fault::kWrongSequence ? 1 : 0);
  answer.status = status;
  answer.n_bufs = request.n_bufs;
  answer.n_tensors = request.n_tensors;
  answer.n_ops = request.n_ops;
  const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  answer.usecs = static_cast<std::uint32_t>(spent.count());
  response.message.resize(sizeof(answer));
  std::memcpy(response.message.data(), &answer, sizeof(answer));
  buffer.flags = DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER | DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT;
  buffer.ptr = block ? block->base + buffer.offset : nullptr;
  response.buffers = {buffer};
  if (packet.fault == Fault::kBadAnswer) response.message.resize(sizeof(answer) / 2);
  if (packet.fault == Fault::kBadAnswer || packet.fault == Fault::kWrongSequence) fault_happened();
  return response;
}

std::optional<Memory::Buffer> Queue::look_up(const htp_buf_desc& record) {
  const int fd = static_cast<int>(record.fd);
  const auto buffer = memory().visible(domain_, fd);
  if (!buffer) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto [kept, fresh] = kept_.try_emplace(fd, Kept{buffer->serial, buffer->size});
  if (!fresh && kept->second.serial != buffer->serial) {
    // On the device the DSP would go on reading the memory that was freed: it finds its mapping by fd.
    ++counters().stale_mappings;
    return std::nullopt;
  }
  return buffer;
}

// Beyond its window of address space the DSP drops the mappings that the batch does not name.
void Queue::make_room(const htp_opbatch_req& request, const std::uint8_t* block) {
  const std::lock_guard lock(mutex_);
  std::map<int, Kept> named;
  std::size_t wanted = 0;
  for (const auto& [fd, kept] : kept_) wanted += kept.bytes;
  for (std::size_t i = 0; i < request.n_bufs; ++i) {
    htp_buf_desc record;
    std::memcpy(&record, block + i * sizeof(record), sizeof(record));
    const auto kept = kept_.find(static_cast<int>(record.fd));
    if (kept == kept_.end()) {
      wanted += record.size;
    } else {
      named.insert(*kept);
    }
  }
  if (wanted > max_vmem_) kept_ = std::move(named);
}

htp_status Queue::execute(const htp_opbatch_req& request, std::uint8_t* block, Fault fault) {
  std::string problem;
  if (request.n_bufs <= HTP_OP_MAX_BUFS) make_room(request, block);
  auto batch = read_batch(
      request, block, [this](const htp_buf_desc& record) { return look_up(record); }, problem);
  if (!batch) {
    complain("batch " + std::to_string(request.seq) + " refused, " + problem);
    return HTP_STATUS_INVAL_PARAMS;
  }
  bool profiled = false;
  {
    const std::lock_guard lock(mutex_);
    profiled = profiled_;
  }
  return execute_ops(*batch, fault, profiled);
}

htp_status Queue::execute_ops(Batch& batch, Fault fault, bool profiled) {
  const bool corrupt = fault == Fault::kGarbage || fault == Fault::kConstant;
  if (corrupt) fault_happened();
  htp_status status = HTP_STATUS_OK;
  for (std::size_t i = 0; i < batch.ops.size(); ++i) {
    const Op& op = batch.ops[i];
    const auto begin = Clock::now();
    htp_status result = HTP_STATUS_OK;
    // After a failure nothing more is computed, but fences are still signalled: others wait for them.
    if (status == HTP_STATUS_OK && op.opcode != HTP_OP_FENCE) {
      result = executor_->execute(op);
      if (result == HTP_STATUS_OK && corrupt) corrupt_outputs(op, fault);
    }
    if (is_fence(op.opcode)) {
      const htp_status fenced = execute_fence(op, status == HTP_STATUS_OK ? result : status);
      if (result == HTP_STATUS_OK) result = fenced;
    }
    if (result == HTP_STATUS_OK) {
      ++counters().ops;
      ++counters().ops_by_opcode[op.opcode];
    } else if (status == HTP_STATUS_OK) {
      status = result;
      complain("op " + std::to_string(i) + " (" + op_name(op.opcode) + ") refused with status " +
               std::to_string(result));
    }
    if (profiled) {
      const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
      batch.profile[i] = {};
      batch.profile[i].opcode = op.opcode;
      batch.profile[i].usecs = static_cast<std::uint32_t>(spent);
      batch.profile[i].cycles_stop = static_cast<std::uint32_t>(spent * 1000);  // as if at 1 GHz
    }
  }
  return status;
}

}  // namespace kazeia::emulated_dsp
