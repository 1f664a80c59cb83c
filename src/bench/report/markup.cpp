#include "bench/report/markup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia::bench::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kCommitDigits = 7;
constexpr double kMostMilliseconds = 10'000;  // from then on it is seconds

// C1 controls, marks and overrides of direction, U+FFFE and U+FFFF.
bool is_refused(std::string_view character) {
  constexpr std::array<std::string_view, 13> kTurns{
      "\xE2\x80\x8E", "\xE2\x80\x8F", "\xE2\x80\xAA", "\xE2\x80\xAB", "\xE2\x80\xAC", "\xE2\x80\xAD", "\xE2\x80\xAE",
      "\xE2\x81\xA6", "\xE2\x81\xA7", "\xE2\x81\xA8", "\xE2\x81\xA9", "\xEF\xBF\xBE", "\xEF\xBF\xBF"};
  if (character.size() == 2 && character[0] == '\xC2') return static_cast<unsigned char>(character[1]) < 0xA0;
  return std::find(kTurns.begin(), kTurns.end(), character) != kTurns.end();
}

// Of the character that begins with `first`; 1 for what begins none.
std::size_t length_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte >= 0xF0 && byte < 0xF8) return 4;
  if (byte >= 0xE0) return byte < 0xF0 ? 3 : 1;
  return byte >= 0xC0 ? 2 : 1;
}

bool is_whole(std::string_view character) {
  const bool ascii = static_cast<unsigned char>(character[0]) < 0x80;
  return ascii || (character.size() > 1 && character.size() == length_of(character[0]) &&
                   std::all_of(character.begin() + 1, character.end(),
                               [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }));
}

std::string bytes_text(double value) {
  constexpr double kMost = 1e18;
  const double size = std::fabs(value);
  if (!(size < kMost)) return number_text(value) + " bytes";
  const std::string text = format_bytes(static_cast<std::uint64_t>(std::llround(size)));
  return fmt::format("{}{}", value < 0 ? "-" : "", text);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, length_of(text[at]));
    const char c = character[0];
    if (!is_whole(character)) {
      safe += kReplacement;
      at += 1;
      continue;
    }
    at += character.size();
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f || is_refused(character)) {
      safe += kReplacement;
    } else {
      safe += character;
    }
  }
  return safe;
}

std::string shortened(std::string_view text, std::size_t most) {
  std::size_t at = 0;
  std::size_t before_last = 0;
  for (std::size_t count = 0; at < text.size(); ++count) {
    if (count == most) return std::string(text.substr(0, before_last)) + "…";
    before_last = at;
    at += length_of(text[at]);
  }
  return std::string(text);
}

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e7) return fmt::format("{:.3g}", value);
  return size >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string quantity_text(double value, std::string_view unit) {
  if (unit == "bytes") return bytes_text(value);
  if (unit == "ms" && std::fabs(value) >= kMostMilliseconds) return number_text(value / 1000) + " s";
  if (unit == "bytes/h") return bytes_text(value) + "/h";
  return fmt::format("{} {}", number_text(value), unit);
}

std::string interval_text(const Figure& figure) {
  const bool bytes = figure.unit.starts_with("bytes");
  if (bytes) return quantity_text(figure.low, figure.unit) + " to " + quantity_text(figure.high, figure.unit);
  if (figure.unit == "ms" && std::fabs(figure.median) >= kMostMilliseconds) {
    return number_text(figure.low / 1000) + " to " + number_text(figure.high / 1000);
  }
  return number_text(figure.low) + " to " + number_text(figure.high);
}

std::string time_text(std::string_view time) {
  std::string text(time.substr(0, 16));
  std::replace(text.begin(), text.end(), 'T', ' ');
  return text;
}

std::string commit_text(const Record& record) {
  if (record.commit.empty()) return "none";
  return record.commit.substr(0, kCommitDigits) + (record.dirty ? "+" : "");
}

std::string record_target(const Record& record) {
  return "#r-" + record.id;
}

std::string record_link(const Record& record) {
  return fmt::format("<a class=\"id\" href=\"{}\">{}</a>", escaped(record_target(record)), escaped(record.id));
}

DisplayUnit display_unit(std::string_view unit, double most) {
  if (unit == "ms" && most >= kMostMilliseconds) return {1000, "s"};
  if (unit != "bytes") return {1, std::string(unit)};
  if (most >= static_cast<double>(kGiB)) return {static_cast<double>(kGiB), "GiB"};
  if (most >= static_cast<double>(kMiB)) return {static_cast<double>(kMiB), "MiB"};
  return {static_cast<double>(kKiB), "KiB"};
}

}  // namespace kazeia::bench::report
