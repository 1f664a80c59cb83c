#include "terminal.h"

#include <cstdio>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/utf8.h"

namespace kazeia::cli {
namespace {

CancelFlag interrupted;
volatile std::sig_atomic_t second_ends_process = 0;

extern "C" void on_interrupt(int) {
  if (interrupted.requested() && second_ends_process != 0) ::_exit(static_cast<int>(ErrorCode::kCancelled));
  interrupted.request();
}

// How a read from stdin ended.
enum class Chunk { kData, kEnd, kInterrupted, kError };

// SIGINT may arrive between a check of the flag and read(): waiting with a time limit bounds the delay.
Chunk read_chunk(std::string& buffer, const CancelFlag& cancel) {
  constexpr int kWaitMs = 200;
  for (;;) {
    if (cancel.requested()) return Chunk::kInterrupted;
    pollfd waiting{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, kWaitMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return Chunk::kError;
    if (n == 0) return Chunk::kEnd;
    buffer.append(bytes, static_cast<std::size_t>(n));
    return Chunk::kData;
  }
}

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a progress bar that cannot be shown is no reason to stop
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool escapes_understood() {
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
}

}  // namespace

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

bool has_colours(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && escapes_understood() && (no_color == nullptr || *no_color == '\0');
}

std::string without_control_characters(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters too; in UTF-8 they are C2 80 to C2 9F.
    if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;
    } else if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t') {
      out += text[i];
    }
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.push(text);
  if (stream.holding()) out += "\uFFFD";
  return out;
}

void write_to_stderr(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

Status Output::write(std::string_view text) {
  while (error_number_ == 0 && !text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      error_number_ = errno;
    } else {
      text.remove_prefix(static_cast<std::size_t>(n));
      written_ += static_cast<std::uint64_t>(n);
    }
  }
  if (error_number_ == 0) return {};
  const bool closed = error_number_ == EPIPE || error_number_ == EBADF;
  const bool full = error_number_ == ENOSPC || error_number_ == EFBIG || error_number_ == EDQUOT;
  return Error(ErrorCode::kWrite,
               closed ? std::string("standard output was closed before the answer was complete")
                      : fmt::format("cannot write to standard output: {}", std::strerror(error_number_)),
               full     ? "Free some space or send the output somewhere else"
               : closed ? "Keep the reading side of the pipe open"
                        : "Send the output somewhere else");
}

CancelFlag& catch_interrupts(SecondInterrupt second) {
  second_ends_process = second == SecondInterrupt::kEndsProcess ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // a blocked read() returns, so that the prompt notices
  ::sigaction(SIGINT, &action, nullptr);
  return interrupted;
}

CancelFlag& catch_stops(SecondInterrupt second) {
  CancelFlag& flag = catch_interrupts(second);
  struct sigaction action {};
  ::sigaction(SIGINT, nullptr, &action);
  for (const int number : {SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
  }
  return flag;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), enabled_(is_terminal(STDERR_FILENO) && escapes_understood()) {}

void ProgressBar::update(double fraction) {
  constexpr double kPatienceMs = 1000;
  constexpr int kWidth = 30;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (!enabled_ || percent == percent_ || since_start_.elapsed_ms() < kPatienceMs) return;
  percent_ = percent;
  visible_ = true;
  const int filled = percent * kWidth / 100;
  write_stderr(fmt::format("\r{} [{:#<{}}{:.<{}}] {:3} %", label_, "", filled, "", kWidth - filled, percent));
}

void ProgressBar::clear() {
  if (visible_) write_stderr("\r\x1b[K");
  visible_ = false;
  percent_ = -1;
}

LineReader::Outcome LineReader::read(std::string& line, const CancelFlag& cancel) {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Outcome::kLine;
    }
    if (ended_) {
      line = std::exchange(buffer_, {});
      return line.empty() ? Outcome::kEnd : Outcome::kLine;
    }
    switch (read_chunk(buffer_, cancel)) {
      case Chunk::kData:
        break;
      case Chunk::kInterrupted:
        return Outcome::kInterrupted;
      case Chunk::kEnd:
      case Chunk::kError:
        ended_ = true;
        break;
    }
  }
}

Result<std::string> read_stdin(std::uint64_t limit_bytes, const CancelFlag& cancel) {
  std::string text;
  for (;;) {
    switch (read_chunk(text, cancel)) {
      case Chunk::kEnd:
        return text;
      case Chunk::kInterrupted:
        return Error(ErrorCode::kCancelled, "stopped while reading the prompt");
      case Chunk::kError:
        return Error(ErrorCode::kFile, fmt::format("cannot read standard input: {}", std::strerror(errno)),
                     "Give the prompt with -p or -f");
      case Chunk::kData:
        break;
    }
    if (text.size() > limit_bytes) {
      return Error(ErrorCode::kUsage, fmt::format("standard input has more than the {} bytes accepted", limit_bytes),
                   "Give a shorter prompt");
    }
  }
}

}  // namespace kazeia::cli
