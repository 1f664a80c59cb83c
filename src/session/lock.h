// The right to change one session: held by one process at a time, and given back by the system when that process dies.
#pragma once

#include <string>

#include "base/result.h"

namespace kazeia {

class SessionLock {
 public:
  // Locks the file `lock` in the session's folder, which must exist. Its text is the holder's process number, for the
  // sentence that others get. Errors: kUsage (somebody has it; also this process itself), kWrite.
  static Result<SessionLock> take(const std::string& folder);

  SessionLock() = default;  // holds nothing
  SessionLock(SessionLock&& other) noexcept;
  SessionLock& operator=(SessionLock&& other) noexcept;
  ~SessionLock();

 private:
  explicit SessionLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace kazeia
