#include "session/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace kazeia {
namespace {

std::string name_of(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return std::filesystem::path(folder).filename().string();
}

int try_flock(int fd) {
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

Error in_use(const std::string& folder, int fd) {
  char digits[16] = {};
  std::string holder;
  const ssize_t count = ::pread(fd, digits, sizeof digits - 1, 0);
  if (count > 0 && digits[0] >= '1' && digits[0] <= '9') {
    holder = fmt::format(" (process {})", std::string_view(digits, std::strspn(digits, "0123456789")));
  }
  return Error(ErrorCode::kUsage, fmt::format("the session '{}' is open in another kazeia{}", name_of(folder), holder),
               "Leave it there, or use another name");
}

bool same_file(int fd, const std::string& path) {
  struct stat mine {};
  struct stat named {};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
         mine.st_ino == named.st_ino;
}

}  // namespace

Result<SessionLock> SessionLock::take(const std::string& folder) {
  const std::string path = folder + "/lock";
  // Whoever had it before may have removed the session, and with it the file that is locked here: then once more.
  constexpr int kAttempts = 8;
  int failed = EAGAIN;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      failed = errno;
      break;
    }
    failed = try_flock(fd);
    if (failed == EWOULDBLOCK) {
      Error error = in_use(folder, fd);
      ::close(fd);
      return error;
    }
    if (failed != 0) {
      ::close(fd);
      break;
    }
    SessionLock lock(fd);
    failed = EAGAIN;
    if (!same_file(fd, path)) continue;
    // Only a courtesy: without the number the sentence is shorter.
    const std::string number = fmt::format("{}\n", ::getpid());
    if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, number.data(), number.size(), 0);
    return lock;
  }
  return Error(ErrorCode::kWrite, fmt::format("cannot lock '{}': {}", path, std::strerror(failed)),
               "Keep sessions in a folder that exists and is writable");
}

SessionLock::SessionLock(SessionLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

SessionLock& SessionLock::operator=(SessionLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

SessionLock::~SessionLock() {
  if (fd_ < 0) return;
  (void)!::ftruncate(fd_, 0);
  ::close(fd_);
}

}  // namespace kazeia
