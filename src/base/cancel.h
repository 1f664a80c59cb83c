// A request to stop, set from a signal handler or another thread, read at token boundaries.
#pragma once

#include <atomic>

namespace kazeia {

class CancelFlag {
 public:
  void request() noexcept { requested_.store(true, std::memory_order_relaxed); }  // async-signal-safe
  void clear() noexcept { requested_.store(false, std::memory_order_relaxed); }
  bool requested() const noexcept { return requested_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> requested_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);
};

}  // namespace kazeia
