#include "session/committer.h"

#include <utility>

namespace kazeia {

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Committer::add(std::function<Status()> commit) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(commit));
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

Status Committer::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
  if (!first_error_) return {};
  return *std::exchange(first_error_, std::nullopt);
}

void Committer::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    {
      std::function<Status()> commit = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
      lock.unlock();
      const Status done = commit();
      commit = nullptr;
      lock.lock();
      if (!done.ok() && !first_error_) first_error_ = done.error();
    }
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace kazeia
