// A dspqueue and the DSP's side of it: a worker thread that takes requests, executes them in order and answers.
#pragma once

#include <dspqueue.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulated_dsp/executor.h"
#include "emulated_dsp/faults.h"
#include "emulated_dsp/memory.h"

namespace kazeia::emulated_dsp {

struct Packet {
  std::vector<dspqueue_buffer> buffers;
  std::vector<std::uint8_t> message;
  Fault fault = Fault::kNone;
  int delay_ms = 0;

  std::size_t bytes() const { return message.size() + buffers.size() * sizeof(dspqueue_buffer); }
};

// Thread-safe. The codes are AEE codes.
class Queue {
 public:
  Queue(int domain, std::size_t request_bytes, std::size_t answer_bytes);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // AEE_EBADPARM: a buffer that is not mapped. AEE_EEXPIRED: no room within `timeout_us`.
  int write(Packet packet, std::uint32_t timeout_us);
  // AEE_EEXPIRED (AEE_EWOULDBLOCK for timeout 0): no answer. AEE_EBADPARM: the answer does not fit.
  int read(std::uint32_t max_buffers, std::uint32_t* num_buffers, dspqueue_buffer* buffers,
           std::uint32_t max_message_length, std::uint32_t* message_length, std::uint8_t* message,
           std::uint32_t timeout_us);

  // The DSP's side. start: AEE_EFAILED if it already runs. stop: waits for the batch in work.
  int start(std::uint64_t max_vmem);
  void stop();
  // The DSP's own view of a buffer: made by the first batch that names it, kept until the host says so.
  void keep(int fd);
  void let_go(int fd);
  void profile(bool on);

 private:
  struct Kept {
    std::uint64_t serial;
    std::size_t bytes;
  };

  void work();
  Packet answer(const Packet& request);
  htp_status execute(const htp_opbatch_req& request, std::uint8_t* block, Fault fault);
  htp_status execute_ops(Batch& batch, Fault fault, bool profiled);
  std::optional<Memory::Buffer> look_up(const htp_buf_desc& record);
  void make_room(const htp_opbatch_req& request, const std::uint8_t* block);

  const int domain_;
  const std::size_t request_bytes_;
  const std::size_t answer_bytes_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Packet> requests_;
  std::deque<Packet> answers_;
  std::size_t requests_size_ = 0;
  bool running_ = false;
  bool hung_ = false;
  bool profiled_ = false;
  std::uint64_t max_vmem_ = 0;
  std::map<int, Kept> kept_;

  std::unique_ptr<Executor> executor_;  // the worker's
  std::thread worker_;
};

}  // namespace kazeia::emulated_dsp
