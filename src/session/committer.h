// Gives files their names on a thread of its own: flushing to a disk may take long, and nobody shall wait for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/cancel.h"
#include "base/result.h"

namespace kazeia {

class Committer {
 public:
  Committer() = default;
  // Does what is left first.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // In order, one at a time. The first error is kept for flush(). Without a thread to be had, it is done here.
  void add(std::function<Status()> commit);
  // Waits for all of them; kCancelled if `cancel` is requested meanwhile, and those that have not begun are dropped.
  // Otherwise the first error since the last call.
  Status flush(const CancelFlag* cancel = nullptr);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> waiting_;
  bool busy_ = false;
  bool ends_ = false;
  std::optional<Error> first_error_;
  std::thread thread_;  // started with the first file
};

}  // namespace kazeia
