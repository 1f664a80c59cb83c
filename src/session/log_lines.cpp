#include "session/log_lines.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kazeia {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kHeaderBegin = R"({"format":"kazeia-session","version":)";
constexpr std::string_view kChangeBegin = R"({"keep":)";
constexpr std::string_view kSumBegin = R"(,"sum":")";
constexpr std::size_t kSumBytes = kSumBegin.size() + 16 + 2;  // with the end of the object

std::string sum_of(std::string_view body) {
  return fmt::format("{}{:016x}\"}}", kSumBegin, XXH3_64bits(body.data(), body.size()));
}

std::string with_sum(std::string body) {
  body += sum_of(body);
  body += '\n';
  return body;
}

// The line without its sum, if that is right.
std::optional<std::string_view> checked_body(std::string_view line) {
  if (line.size() < kSumBytes || line.size() > kLogLineLimitBytes) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - kSumBytes);
  if (line.substr(body.size()) != sum_of(body)) return std::nullopt;
  return body;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// At most 15 digits: no sum of two of them overflows, and other readers of JSON keep them exact.
bool take_number(std::string_view& text, std::uint64_t& number) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 15) return false;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return true;
}

struct Change {
  std::uint64_t keep = 0;
  std::vector<Message> added;
  std::uint64_t left_out = 0;
  std::uint64_t at = 0;
};

Result<Change> change_from(std::string_view line) {
  const Error damaged(ErrorCode::kFile, "the line is damaged");
  const std::optional<std::string_view> checked = checked_body(line);
  if (!checked) return damaged;
  std::string_view body = *checked;
  Change change;
  if (!take(body, kChangeBegin) || !take_number(body, change.keep) || !take(body, R"(,"add":)")) return damaged;
  // Behind the messages there are only names and digits, so the last one found is not inside a message.
  const std::size_t end = body.rfind(R"(,"left_out":)");
  if (end == std::string_view::npos) return damaged;
  std::string_view rest = body.substr(end);
  if (!take(rest, R"(,"left_out":)") || !take_number(rest, change.left_out) || !take(rest, R"(,"at":)") ||
      !take_number(rest, change.at) || !rest.empty()) {
    return damaged;
  }
  KAZEIA_ASSIGN(change.added, messages_from_json(body.substr(0, end), change.keep));
  return change;
}

std::optional<std::uint64_t> header_version(std::string_view line) {
  std::optional<std::string_view> body = checked_body(line);
  std::uint64_t version = 0;
  if (!body || !take(*body, kHeaderBegin) || !take_number(*body, version)) return std::nullopt;
  return version;
}

// The lines that became one when a line break was damaged: it was between the sum of one and the beginning of the next.
// Or one line, behind whose sum it was.
std::vector<std::string_view> split_joined(std::string_view line) {
  std::vector<std::string_view> pieces;
  const auto sum_ends_at = [line](std::size_t end) { return line.substr(end - kSumBytes).starts_with(kSumBegin); };
  std::size_t begin = 0;
  for (std::size_t at = line.find(kChangeBegin, 1); at != std::string_view::npos;
       at = line.find(kChangeBegin, at + 1)) {
    if (at < begin + 1 + kSumBytes || !sum_ends_at(at - 1)) continue;
    pieces.push_back(line.substr(begin, at - 1 - begin));
    begin = at;
  }
  const bool break_behind = line.size() > begin + kSumBytes && sum_ends_at(line.size() - 1);
  pieces.push_back(line.substr(begin, line.size() - begin - (break_behind ? 1 : 0)));
  return pieces;
}

// Messages under the places they had when they were stored: a change still removes what it removed then, even if the
// messages before it were lost with a damaged line.
class Replay {
 public:
  void apply(Change change) {
    while (!messages_.empty() && messages_.back().place >= change.keep) messages_.pop_back();
    for (Message& message : change.added) messages_.push_back({change.keep++, std::move(message)});
    left_out_ = change.left_out;
    changed_ = change.at;
    ++changes_;
  }
  std::size_t changes() const { return changes_; }

  void move_into(LogContent& content) {
    const bool has_system = !messages_.empty() && messages_.front().message.role == Role::kSystem;
    for (Placed& placed : messages_) {
      if (placed.message.role != Role::kSystem && placed.place < left_out_ + (has_system ? 1 : 0)) ++content.left_out;
      content.messages.push_back(std::move(placed.message));
    }
    content.changed = static_cast<std::time_t>(changed_);
  }

 private:
  struct Placed {
    std::uint64_t place;
    Message message;
  };
  std::vector<Placed> messages_;
  std::uint64_t left_out_ = 0;
  std::uint64_t changed_ = 0;
  std::size_t changes_ = 0;
};

// "3, 7, 20": for a remark, however many there are.
class LineNumbers {
 public:
  void add(std::size_t number) {
    constexpr std::size_t kMostNamed = 10;
    if (++count_ <= kMostNamed) names_ += fmt::format("{}{}", names_.empty() ? "" : ", ", number);
    if (count_ == kMostNamed + 1) names_ += " and more";
  }
  bool empty() const { return count_ == 0; }
  std::string sentence(std::string_view one, std::string_view many) const {
    return fmt::format("{} {} {}", count_ == 1 ? "line" : "lines", names_, count_ == 1 ? one : many);
  }

 private:
  std::size_t count_ = 0;
  std::string names_;
};

std::string header_line() {
  return with_sum(fmt::format("{}{}", kHeaderBegin, kVersion));
}

class Reader {
 public:
  // Lines in order, without their line breaks. kFile if a header says that the log is of another version.
  Status read(std::string_view line, bool closed) {
    ++number_;
    KAZEIA_ASSIGN(const bool whole, accept(line, number_ == 1));
    if (whole) {
      content_.whole_bytes += line.size() + (closed ? 1 : 0);
      if (!closed) worsen(LogState::kLineBreakDue);
      return {};
    }
    const std::vector<std::string_view> pieces = split_joined(line);
    const bool joined = pieces.size() > 1 || pieces[0].size() < line.size();
    if (!joined && !closed) {
      worsen(LogState::kTornTail);
      content_.remarks.push_back(fmt::format("line {}, the last one, is not complete and was left out", number_));
      return {};
    }
    worsen(LogState::kDamaged);
    bool lost = !joined;
    for (std::size_t i = 0; joined && i < pieces.size(); ++i) {
      KAZEIA_ASSIGN(const bool accepted, accept(pieces[i], number_ == 1 && i == 0));
      lost = lost || !accepted;
    }
    (lost ? damaged_ : joined_).add(number_);
    return {};
  }

  Result<LogContent> finish(std::string_view text) && {
    if (!has_header_ && replay_.changes() == 0) {
      // What a power cut right after the creation leaves: nothing, a part of the header, or blocks that were never
      // written.
      const bool unwritten = text.find_first_not_of('\0') == std::string_view::npos;
      if (!unwritten && !header_line().starts_with(text)) {
        return Error(ErrorCode::kFile, "not a message log of a session", "Check the path");
      }
      content_.state = LogState::kNew;
      content_.remarks.clear();
      return std::move(content_);
    }
    if (!has_header_) {
      worsen(LogState::kDamaged);
      content_.remarks.emplace_back("the log did not begin with its header, which was put back");
    }
    if (!damaged_.empty()) {
      content_.remarks.push_back(damaged_.sentence("is damaged and was left out", "are damaged and were left out"));
    }
    if (!joined_.empty()) {
      content_.remarks.push_back(
          joined_.sentence("has lost a line break, which was put back", "have lost line breaks, which were put back"));
    }
    replay_.move_into(content_);
    return std::move(content_);
  }

 private:
  // False for what is neither.
  Result<bool> accept(std::string_view line, bool may_be_header) {
    const std::optional<std::uint64_t> version = may_be_header ? header_version(line) : std::nullopt;
    if (version && *version != kVersion) {
      return Error(ErrorCode::kFile,
                   fmt::format("the log has version {} of the format, this program reads {}", *version, kVersion),
                   "Use the version of kazeia that wrote it");
    }
    has_header_ = has_header_ || version;
    if (version) return true;
    Result<Change> change = change_from(line);
    if (!change.ok()) return false;
    replay_.apply(std::move(change).value());
    return true;
  }
  void worsen(LogState state) { content_.state = std::max(content_.state, state); }

  LogContent content_;
  Replay replay_;
  LineNumbers damaged_;
  LineNumbers joined_;
  std::size_t number_ = 0;
  bool has_header_ = false;
};

}  // namespace

std::string change_line(std::size_t keep, std::span<const Message> added, std::size_t left_out, std::time_t at) {
  return with_sum(fmt::format(R"({}{},"add":{},"left_out":{},"at":{})", kChangeBegin, keep, messages_to_json(added),
                              left_out, std::max<std::time_t>(at, 0)));
}

Status check_change_line(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const Result<Change> change = change_from(line);
  if (!change.ok()) return change.error();
  return {};
}

std::string whole_log(std::span<const Message> messages, std::size_t left_out, std::time_t at) {
  // Far below the limit of a line; one message alone may be longer.
  constexpr std::size_t kLineBytes = kMiB;
  std::string text = header_line();
  for (std::size_t done = 0; done < messages.size();) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    while (done + count < messages.size()) {
      bytes += messages_to_json(messages.subspan(done + count, 1)).size();
      if (count > 0 && bytes > kLineBytes) break;
      ++count;
    }
    text += change_line(done, messages.subspan(done, count), left_out, at);
    done += count;
  }
  return text;
}

Result<LogContent> read_log(std::string_view text) {
  Reader reader;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    KAZEIA_TRY(reader.read(text.substr(at, end - at), end < text.size()));
    at = end + 1;
  }
  return std::move(reader).finish(text);
}

}  // namespace kazeia
