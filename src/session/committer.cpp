#include "session/committer.h"

#include <chrono>
#include <exception>
#include <utility>

#include <fmt/format.h>

namespace kazeia {

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

namespace {

Status guarded(const std::function<Status()>& commit) {
  try {
    return commit();
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kWrite, fmt::format("a file could not be finished: {}", exception.what()));
  }
}

}  // namespace

void Committer::add(std::function<Status()> commit) {
  {
    const std::lock_guard lock(mutex_);
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
      waiting_.push_back(std::move(commit));
      changed_.notify_all();
      return;
    } catch (const std::exception&) {
      // No thread, or no memory for the queue: then whoever asks waits.
    }
  }
  const Status done = commit ? guarded(commit) : Status();
  const std::lock_guard lock(mutex_);
  if (!done.ok() && !first_error_) first_error_ = done.error();
}

Status Committer::flush(const CancelFlag* cancel) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return waiting_.empty() && !busy_; })) {
    if (cancel == nullptr || !cancel->requested()) continue;
    waiting_.clear();
    return Error(ErrorCode::kCancelled, "stopped before everything was on the disk");
  }
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
      const Status done = guarded(commit);
      commit = nullptr;
      lock.lock();
      if (!done.ok() && !first_error_) first_error_ = done.error();
    }
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace kazeia
