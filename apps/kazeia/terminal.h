// The terminal side of the verbs: checked output, colours or not, progress, Ctrl-C, lines from stdin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"

namespace kazeia::cli {

bool is_terminal(int descriptor);
// A terminal that understands escapes, and a user who wants them (NO_COLOR unset or empty, TERM not "dumb").
bool has_colours(int descriptor);
// A model can write anything; on a terminal its control characters would move the cursor or worse. Keeps line breaks
// and tabs.
std::string without_control_characters(std::string_view text);
// `text` with bytes that are not UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// To stderr, whatever becomes of it: a message that cannot be shown (a log on a full disk) ends nothing.
void write_to_stderr(std::string_view text);

// Standard output without a buffer: what was generated is visible at once and an error is known at once.
class Output {
 public:
  // kWrite for a closed pipe or a full disk; sticky.
  Status write(std::string_view text);
  std::uint64_t bytes_written() const { return written_; }

 private:
  int error_number_ = 0;
  std::uint64_t written_ = 0;
};

enum class SecondInterrupt { kIgnored, kEndsProcess };
// From now on Ctrl-C requests the returned flag. With kEndsProcess, a second one before the flag is cleared
// ends the process with exit code 130: a way out while something slow has not come to its next boundary.
CancelFlag& catch_interrupts(SecondInterrupt second);
// Also what ends a process politely: SIGTERM, and SIGHUP unless it is ignored (nohup). For verbs that leave an
// unfinished file to remove.
CancelFlag& catch_stops(SecondInterrupt second);

// A bar on stderr, only on a terminal and only once a second has passed; removed by clear() and on destruction.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(double fraction);  // 0..1
  void clear();

 private:
  std::string label_;
  bool enabled_;
  bool visible_ = false;
  int percent_ = -1;
  Stopwatch since_start_;
};

// Lines from stdin. Not mixed with C's or C++'s own buffers.
class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };
  // kInterrupted if `cancel` is requested while waiting; what was typed of the line is dropped by the terminal.
  // A last line without a line break is a line.
  Outcome read(std::string& line, const CancelFlag& cancel);

 private:
  std::string buffer_;
  bool ended_ = false;
};

// Everything up to the end of stdin; kUsage above `limit_bytes`, kCancelled on Ctrl-C, kFile if it cannot be read.
Result<std::string> read_stdin(std::uint64_t limit_bytes, const CancelFlag& cancel);

}  // namespace kazeia::cli
