// What went wrong, in one sentence, and what the user can do next.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace kazeia {

// Groups of errors, not single causes: a caller branches on the group, a person reads the message.
// The values are the process exit codes (README, "Exit codes"); they never change meaning.
enum class ErrorCode {
  kUsage = 2,        // an argument or option outside its documented range
  kFile = 3,         // a file that is missing, unreadable, or not what it claims to be
  kUnsupported = 4,  // a well-formed model or request that this engine cannot serve
  kTooLarge = 5,     // does not fit the context, the memory or the budget
  kWrite = 6,        // output that could not be written (disk full, read-only, closed pipe)
  kEngine = 7,       // the inference library or a device failed
  kCancelled = 130,  // the user asked to stop
};

class [[nodiscard]] Error {
 public:
  // `message` is one sentence without a trailing period, naming the thing it is about;
  // `next` says what to do about it and may be empty.
  Error(ErrorCode code, std::string message, std::string next = {})
      : code_(code), message_(std::move(message)), next_(std::move(next)) {}

  ErrorCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }
  const std::string& message() const { return message_; }
  const std::string& next() const { return next_; }

  // "message. next." as printed behind "kazeia: ".
  std::string sentence() const;

  // The same error with "`context`: " before its message; for adding a file name on the way up.
  Error within(std::string_view context) const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string next_;
};

// Stable lower-case name of a group ("usage", "file", ...), used in --json.
std::string_view error_code_name(ErrorCode code);

}  // namespace kazeia
