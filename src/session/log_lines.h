// A message log as text: its lines, written and read. Format: docs/session_format.md. Nothing here touches a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "chat/conversation.h"

namespace kazeia {

inline constexpr std::uint64_t kLogLimitBytes = 256 * kMiB;
inline constexpr std::uint64_t kLogLineLimitBytes = 64 * kMiB;

// The conversation becomes its first `keep` messages and the added ones. With its line break.
std::string change_line(std::size_t keep, std::span<const Message> added, std::size_t left_out, std::time_t at);
// Whether a reader accepts the line: kFile, with the reason, for messages that cannot be in a conversation.
Status check_change_line(std::string_view line);
// The header, and the conversation in as few changes as there can be. No messages: the header alone.
std::string whole_log(std::span<const Message> messages, std::size_t left_out, std::time_t at);

enum class LogState {  // the worst that was found, mildest first
  kWhole,
  kNew,           // nothing was ever written, or only a part of the header
  kLineBreakDue,  // the last line is whole, but for its line break
  kTornTail,      // what is behind whole_bytes is the beginning of a line
  kDamaged,       // the log has to be written anew
};

struct LogContent {
  LogState state = LogState::kWhole;
  std::uint64_t whole_bytes = 0;
  std::vector<Message> messages;
  std::size_t left_out = 0;
  std::time_t changed = 0;  // the last change; 0 without one
  std::vector<std::string> remarks;
};

// Everything that can be read. Errors (kFile): not a message log, or one of another version.
Result<LogContent> read_log(std::string_view text);

}  // namespace kazeia
