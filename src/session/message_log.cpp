#include "session/message_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/files.h"
#include "session/log_lines.h"

namespace kazeia {
namespace {

namespace fs = std::filesystem;

// An open log is compacted if it is larger than this and than so many times what it has to say.
constexpr std::uint64_t kCompactAboveBytes = kMiB;
constexpr std::uint64_t kCompactAboveRatio = 4;
// A repaired or compacted line may have other numbers in it, and must still be short enough to be read.
constexpr std::uint64_t kWrittenLineLimitBytes = kLogLineLimitBytes - kKiB;

Error cannot_write(const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(ErrorCode::kWrite,
               fmt::format("cannot keep the conversation in '{}': {}", path,
                           full ? "no space left" : std::strerror(error_number)),
               full ? "Free some space; what is not kept yet is kept with the next message"
                    : "Make the file and its folder writable");
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Result<int> open_to_write(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return cannot_write(path, errno);
  return fd;
}

Result<std::string> read_text(const std::string& path) {
  return read_text_file(path, kLogLimitBytes);
}

Result<LogContent> content_of(const std::string& path, std::string_view text) {
  Result<LogContent> content = read_log(text);
  if (!content.ok()) return content.error().within("'" + path + "'");
  return content;
}

// What writers that were killed have left. Only for the holder of the lock.
void remove_abandoned(const std::string& path) {
  std::error_code error;
  const std::string begin = fs::path(path).filename().string();  // the log's, or a damaged one's that was to be kept
  const fs::directory_iterator end;
  for (fs::directory_iterator entry(folder_of(path), error); !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (name.starts_with(begin) && name.find(".partial-") != std::string::npos) fs::remove(entry->path(), ignored);
  }
}

// The file as it was found, under a name that is free, or under the last one.
Status keep_damaged(const std::string& path, std::string_view text) {
  constexpr int kMostKept = 5;
  std::string kept;
  for (int i = 1; i <= kMostKept; ++i) {
    kept = i == 1 ? path + ".damaged" : fmt::format("{}.damaged-{}", path, i);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(kept, ignored))) break;
  }
  KAZEIA_ASSIGN(AtomicFileWriter writer, AtomicFileWriter::create(kept, 0600));
  KAZEIA_TRY(writer.write(text));
  return writer.commit();
}

}  // namespace

MessageLog::MessageLog(MessageLog&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::move(other.lock_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      conversation_(std::move(other.conversation_)),
      left_out_(other.left_out_),
      changed_(other.changed_),
      remarks_(std::move(other.remarks_)) {}

MessageLog::~MessageLog() {
  if (fd_ >= 0) ::close(fd_);
}

Result<MessageLog> MessageLog::read(const std::string& path) {
  KAZEIA_ASSIGN(const std::string text, read_text(path));
  KAZEIA_ASSIGN(LogContent content, content_of(path, text));
  MessageLog log;
  log.path_ = path;
  log.take(std::move(content));
  return log;
}

Result<MessageLog> MessageLog::open(const std::string& path) {
  MessageLog log;
  log.path_ = path;
  KAZEIA_ASSIGN(log.lock_, SessionLock::take(folder_of(path)));
  remove_abandoned(path);
  std::string text;
  // A file that cannot be looked at is not a new one.
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 || errno != ENOENT) {
    KAZEIA_ASSIGN(text, read_text(path));
  }
  KAZEIA_ASSIGN(LogContent content, content_of(path, text));
  const LogState state = content.state;
  const std::uint64_t whole_bytes = content.whole_bytes;
  log.take(std::move(content));
  const auto rewrite = [&log] { return log.rewrite(log.conversation_.messages(), log.left_out_, log.changed_); };
  if (state == LogState::kNew || state == LogState::kDamaged) {
    if (state == LogState::kDamaged) KAZEIA_TRY(keep_damaged(path, text));
    KAZEIA_TRY(rewrite());
    return log;
  }
  if (text.size() > kCompactAboveBytes &&
      text.size() / kCompactAboveRatio > whole_log(log.conversation_.messages(), 0, 0).size() && rewrite().ok()) {
    return log;  // without space for a second file the log stays long
  }
  KAZEIA_ASSIGN(log.fd_, open_to_write(path));
  log.bytes_ = whole_bytes;
  if (state == LogState::kTornTail &&
      (::ftruncate(log.fd_, static_cast<off_t>(whole_bytes)) != 0 || ::fdatasync(log.fd_) != 0)) {
    return cannot_write(path, errno);
  }
  if (state == LogState::kLineBreakDue) KAZEIA_TRY(log.append("\n"));
  return log;
}

void MessageLog::take(LogContent content) {
  for (Message& message : content.messages) conversation_.add(std::move(message));
  left_out_ = content.left_out;
  changed_ = content.changed;
  remarks_ = std::move(content.remarks);
}

Status MessageLog::store(const Conversation& conversation, std::size_t left_out) {
  if (fd_ < 0) {
    return Error(ErrorCode::kUsage, fmt::format("'{}' is not open for writing", path_), "Open the session again");
  }
  const std::vector<Message>& before = conversation_.messages();
  const std::vector<Message>& now = conversation.messages();
  const auto differ = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  const auto keep = static_cast<std::size_t>(differ.second - now.begin());
  if (keep == before.size() && keep == now.size() && left_out == left_out_) return {};
  const std::time_t at = std::time(nullptr);
  const std::string line = change_line(keep, std::span(now).subspan(keep), left_out, at);
  if (line.size() > kWrittenLineLimitBytes) {
    return Error(ErrorCode::kTooLarge, "more than 64 MiB of messages cannot be kept at once", "Begin another session");
  }
  // A line that no reader accepts would be worse than none.
  if (const Status readable = check_change_line(line); !readable.ok()) {
    return Error(ErrorCode::kUsage, "the conversation cannot be kept: " + readable.error().message());
  }
  if (bytes_ + line.size() > kLogLimitBytes) {
    KAZEIA_TRY(rewrite(now, left_out, at));
  } else {
    KAZEIA_TRY(append(line));
  }
  conversation_ = conversation;
  left_out_ = left_out;
  changed_ = at;
  return {};
}

Status MessageLog::append(std::string_view bytes) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || info.st_nlink == 0 || static_cast<std::uint64_t>(info.st_size) < bytes_) {
    return Error(ErrorCode::kWrite, fmt::format("'{}' was removed or cut by another program", path_),
                 "Save the conversation under another name");
  }
  int failed = 0;
  for (std::size_t done = 0; failed == 0 && done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(bytes_ + done));
    if (n < 0 && errno != EINTR) failed = errno;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  if (failed == 0 && ::fdatasync(fd_) != 0) failed = errno;
  if (failed == 0) {
    bytes_ += bytes.size();
    return {};
  }
  // If even this fails, the next line is written over the torn one, and a reader leaves out what remains of it.
  if (::ftruncate(fd_, static_cast<off_t>(bytes_)) == 0) (void)::fdatasync(fd_);
  return cannot_write(path_, failed);
}

Status MessageLog::rewrite(std::span<const Message> messages, std::size_t left_out, std::time_t changed) {
  const std::string text = whole_log(messages, left_out, changed);
  if (text.size() > kLogLimitBytes) {
    return Error(ErrorCode::kTooLarge, "a session keeps no more than 256 MiB of messages", "Begin another session");
  }
  KAZEIA_ASSIGN(AtomicFileWriter writer, AtomicFileWriter::create(path_, 0600));
  KAZEIA_TRY(writer.write(text));
  // Opened before it has its name: afterwards nothing may fail.
  KAZEIA_ASSIGN(const int fd, open_to_write(writer.temporary_path()));
  if (Status committed = writer.commit(); !committed.ok()) {
    ::close(fd);
    return committed;
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  bytes_ = text.size();
  return {};
}

}  // namespace kazeia
