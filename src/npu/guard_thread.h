// The thread on which driver calls run, so that one that never returns costs a thread and not the process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace kazeia::npu {

// Not thread-safe: one caller at a time.
class DriverThread {
 public:
  class Call {
   public:
    explicit Call(std::function<void()> work) : work_(std::move(work)) {}
    bool finished() const { return finished_.load(std::memory_order_acquire); }

   private:
    friend class DriverThread;
    std::function<void()> work_;
    std::atomic<bool> finished_{false};
  };
  using Ticket = std::shared_ptr<Call>;

  DriverThread() = default;
  ~DriverThread() { abandon(); }
  DriverThread(const DriverThread&) = delete;
  DriverThread& operator=(const DriverThread&) = delete;

  // Starts `work`, which must own everything it touches: it may outlive the caller. The previous call must have
  // finished or been abandoned. Null if no thread could be made.
  Ticket post(std::function<void()> work);
  // True when it finished within `limit`. Time in which this process was stopped or suspended does not count.
  bool wait(const Ticket& call, std::chrono::microseconds limit) const;
  // Leaves the thread to end by itself when its call returns, if ever; the next post() makes a new one.
  void abandon();

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared);
  bool start();

  std::shared_ptr<Shared> shared_;
};

}  // namespace kazeia::npu
