// The messages of one conversation on disk: a message that was shown is there after a crash. Format:
// docs/session_format.md.
//
// The file is a log: every change of the conversation is one line, appended and flushed to the disk before the call
// returns. What a crash leaves is the log up to some line, and perhaps a torn last one, which is cut off when the log
// is opened again. A line that is damaged in the middle is left out (what it added is missing, everything else is
// there), said in remarks(), and the file as it was is kept beside it.
//
// Threads: one at a time. Processes: one at a time, by a lock that the system releases when its holder dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "session/lock.h"

namespace kazeia {

struct LogContent;

class MessageLog {
 public:
  // Takes the lock of the folder that `path` is in, which must exist; opens or creates the file (mode 0600), reads,
  // repairs. Errors: kFile (cannot be read, not such a log, written by a newer version; the file is not touched),
  // kUsage (another process has it open; it is named), kWrite.
  static Result<MessageLog> open(const std::string& path);
  // Reads without lock, repair or creation: for listings and exports. kFile. store() is an error then.
  static Result<MessageLog> read(const std::string& path);
  MessageLog(MessageLog&& other) noexcept;
  MessageLog& operator=(MessageLog&& other) = delete;
  ~MessageLog();

  const Conversation& conversation() const { return conversation_; }
  // How many messages behind the system message are left out of prompts, because the context was full.
  std::size_t left_out() const { return left_out_; }
  // When the last change was stored; 0 if there was none.
  std::time_t changed() const { return changed_; }
  // What was wrong with the file, one sentence each, without a period.
  const std::vector<std::string>& remarks() const { return remarks_; }

  // Makes the log say `conversation`: appends what is new behind what both have, in one line, durably. Nothing is
  // written if nothing changed. After an error the log still says what it said before, on disk and in conversation(); a
  // later call may succeed. Errors: kWrite (disk full, read-only), kTooLarge (64 MiB at once, 256 MiB in all), kUsage
  // (messages that no conversation can have, such as a system message in the middle).
  Status store(const Conversation& conversation, std::size_t left_out);

 private:
  MessageLog() = default;
  void take(LogContent content);
  Status append(std::string_view bytes);
  Status rewrite(std::span<const Message> messages, std::size_t left_out, std::time_t changed);

  std::string path_;
  SessionLock lock_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;  // of the file, up to which every line is whole
  Conversation conversation_;
  std::size_t left_out_ = 0;
  std::time_t changed_ = 0;
  std::vector<std::string> remarks_;
};

}  // namespace kazeia
