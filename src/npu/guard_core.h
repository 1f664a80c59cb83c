// The guard's state and its answer to every driver call. Internal to guard*.cpp.
//
// Invariants:
//   - A batch is in `unanswered` of its queue from upstream's write until upstream's read, whoever answers it, and
//     answers leave in the order of the writes.
//   - `on_device` counts batches the driver took and did not answer; it only falls by an answer or with the session.
//   - The driver is called on `thread_` only, by the holder of `calls_`; `state_` is never held across such a call.
//   - failed_ goes from false to true once. While it is true only memory calls reach the driver.
//   - Nothing a driver call reads or writes lies on a caller's stack.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "npu/guard.h"
#include "npu/guard_driver.h"
#include "npu/guard_thread.h"

namespace kazeia::npu {

// What an error code of the driver means for a running session.
FailureKind kind_of_driver_error(int error);
bool is_timeout(int error);
std::string deadline_text(std::chrono::milliseconds deadline);  // "10 s", "250 ms"

class GuardCore {
 public:
  GuardCore(const DriverTable& table, const GuardOptions& options);
  ~GuardCore();

  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  GuardStatus status() const;
  void declare_failed(FailureKind kind, std::string reason);

  // The driver calls, guard_calls.cpp.
  void* allocate(std::uint64_t bytes, std::function<void*()> call);
  const DriverFunctions& driver() const { return driver_; }
  void free(void* memory);
  int to_fd(void* memory);
  int map(int domain, int fd, void* address, int offset, std::size_t bytes, fastrpc_map_flags flags);
  int unmap(int domain, int fd, void* address, std::size_t bytes);
  int open(const char* uri, remote_handle64* handle);
  int invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments);
  int close(remote_handle handle);
  int handle_control(remote_handle64 handle, std::uint32_t request, void* data, std::uint32_t bytes);
  int driver_control(std::uint32_t request, void* data, std::uint32_t bytes);
  int session_control(std::uint32_t request, void* data, std::uint32_t bytes);

  // guard_queue.cpp
  AEEResult create_queue(int domain, std::uint32_t flags, std::uint32_t request_bytes, std::uint32_t response_bytes,
                         dspqueue_callback_t packet, dspqueue_callback_t error, void* context, dspqueue_t* queue);
  AEEResult export_queue(dspqueue_t queue, std::uint64_t* id);
  AEEResult close_queue(dspqueue_t queue);
  AEEResult write(dspqueue_t queue, std::uint32_t flags, std::uint32_t n_buffers, const dspqueue_buffer* buffers,
                  std::uint32_t length, const std::uint8_t* message, std::uint32_t timeout_us);
  AEEResult read(dspqueue_t queue, std::uint32_t* flags, std::uint32_t max_buffers, std::uint32_t* n_buffers,
                 dspqueue_buffer* buffers, std::uint32_t max_length, std::uint32_t* length, std::uint8_t* message,
                 std::uint32_t timeout_us);

 private:
  struct Batch {
    std::uint64_t number = 0;  // upstream's sequence number
    std::uint32_t n_buffers = 0;
    std::uint32_t n_tensors = 0;
    std::uint32_t n_ops = 0;
    dspqueue_buffer block{};  // where its descriptors lie
  };
  struct Read;
  struct Queue {
    std::deque<Batch> unanswered;   // guarded by state_
    std::uint64_t on_device = 0;    // guarded by calls_, as all below
    std::shared_ptr<Read> reading;  // at most one at a time over all queues
    std::chrono::steady_clock::time_point last_look;
    std::chrono::microseconds waited{0};  // since the device last answered
  };
  enum class Look { kAnswer, kNothing, kFailed };

  std::chrono::milliseconds limit() const;  // for the next call
  bool in_session() const;
  // Runs `call` on the driver's thread; calls_ must be held. False: no answer in time, and the guard has failed.
  bool forward(std::string_view what, std::chrono::milliseconds limit, std::function<void()> call);
  void silent(std::string_view what, std::chrono::milliseconds limit);
  void abandon_thread();
  // The first failure is the one kept.
  void fail(FailureKind kind, std::string reason);
  // A failure that upstream is told about.
  void refuse(FailureKind kind, std::string reason);
  // The driver could not do `what` while a session was being set up.
  void refuse_start(std::string_view what, int error);
  // A call that failed: success for upstream inside a session, the error before it.
  int report(FailureKind kind, std::string_view what, int error);
  bool keeps_memory() const;
  int copied_control(std::string_view what, void* data, std::uint32_t bytes, std::function<int(void*)> call);

  Queue& queue(dspqueue_t id);
  Look look(dspqueue_t id, Queue& queue, std::uint32_t timeout_us);
  Look give_up(Queue& queue);
  bool start_reading(dspqueue_t id, Queue& queue, std::chrono::microseconds slice);
  // Ends a read that is under way, keeping an answer it may have got. False: it hangs, and the guard has failed.
  bool stop_reading();
  // Takes the device's answer off `queue`; true if it is what the oldest batch must be answered with.
  bool accept(Queue& queue, const Read& read);
  // Waits until the device has answered what it was given, so that it changes nothing later.
  void settle();
  void device_answered(Queue& queue);

  DriverTable table_;
  DriverFunctions driver_;
  GuardOptions options_;

  std::mutex calls_;
  DriverThread thread_;
  int hung_threads_ = 0;

  mutable std::mutex state_;
  std::atomic<bool> failed_{false};
  GuardStatus status_;
  bool silent_ = false;                             // the driver or the device hangs
  std::set<remote_handle> sessions_;                // started and not closed
  std::map<const void*, std::uint64_t> allocated_;  // bytes by address
  std::map<dspqueue_t, Queue> queues_;              // the map itself guarded by state_
  std::atomic<std::uint64_t> on_device_{0};         // over all queues, closed ones too
};

}  // namespace kazeia::npu
