#include "npu/guard_thread.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace kazeia::npu {

struct DriverThread::Shared {
  std::mutex mutex;
  std::condition_variable posted;
  std::condition_variable finished;
  Ticket next;
  bool retired = false;
};

void DriverThread::serve(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->posted.wait(lock, [&] { return shared->next != nullptr || shared->retired; });
    if (shared->next == nullptr) return;
    const Ticket call = std::move(shared->next);
    shared->next = nullptr;
    lock.unlock();
    call->work_();
    call->work_ = nullptr;  // what it owned may own the call
    lock.lock();
    call->finished_.store(true, std::memory_order_release);
    shared->finished.notify_all();
    if (shared->retired) return;
  }
}

bool DriverThread::start() {
  shared_ = std::make_shared<Shared>();
  // Signals of the process belong to the application's threads; a handler must never run inside the driver.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread(serve, shared_).detach();
  } catch (const std::system_error&) {
    shared_ = nullptr;
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

DriverThread::Ticket DriverThread::post(std::function<void()> work) {
  if (shared_ == nullptr && !start()) return nullptr;
  auto call = std::make_shared<Call>(std::move(work));
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->next = call;
  }
  shared_->posted.notify_one();
  return call;
}

bool DriverThread::wait(const Ticket& call, std::chrono::microseconds limit) const {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  if (call->finished()) return true;
  std::unique_lock lock(shared_->mutex);
  // Counted in steps: a process that was stopped for a minute has waited one long step, not a minute.
  constexpr std::chrono::microseconds kStep = 50ms;
  std::chrono::microseconds waited{0};
  while (!call->finished() && waited < limit) {
    const auto before = Clock::now();
    shared_->finished.wait_for(lock, std::min(kStep, limit - waited));
    const auto step = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - before);
    waited += std::min(step, 2 * kStep);
  }
  return call->finished();
}

void DriverThread::abandon() {
  if (shared_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->retired = true;
  }
  shared_->posted.notify_all();
  shared_ = nullptr;
}

}  // namespace kazeia::npu
