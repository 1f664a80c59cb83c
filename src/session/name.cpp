#include "session/name.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/utf8.h"

namespace kazeia {
namespace {

constexpr std::size_t kLongestName = 64;  // characters
constexpr std::size_t kMostNameBytes = 255;

// Outside ASCII, by blocks, what is no letter, mark or digit: punctuation, symbols, and above all what cannot be seen
// or turns the direction of the text around it.
constexpr std::pair<char32_t, char32_t> kNotLetters[] = {
    {0x80, 0xA9},       {0xAB, 0xB4},     {0xB6, 0xB9},     {0xBB, 0xBF},       {0xD7, 0xD7},       {0xF7, 0xF7},
    {0x61C, 0x61C},     {0x115F, 0x1160}, {0x1680, 0x1680}, {0x17B4, 0x17B5},   {0x180B, 0x180F},   {0x2000, 0x206F},
    {0x20A0, 0x20CF},   {0x2100, 0x2BFF}, {0x2E00, 0x2E7F}, {0x2FF0, 0x3004},   {0x3008, 0x3020},   {0x3030, 0x3030},
    {0x3164, 0x3164},   {0xD800, 0xF8FF}, {0xFE00, 0xFE6F}, {0xFEFF, 0xFF0F},   {0xFF1A, 0xFF20},   {0xFF3B, 0xFF40},
    {0xFF5B, 0xFF65},   {0xFFA0, 0xFFA0}, {0xFFE0, 0xFFFF}, {0x1BCA0, 0x1BCAF}, {0x1D000, 0x1D24F}, {0x1F000, 0x1FAFF},
    {0xE0000, 0x10FFFF}};

bool allowed(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '.' ||
           c == '_' || c == '-';
  }
  return std::none_of(std::begin(kNotLetters), std::end(kNotLetters),
                      [c](const auto& range) { return c >= range.first && c <= range.second; });
}

// nullopt if the text is not UTF-8.
std::optional<std::u32string> characters_of(std::string_view text) {
  Utf8Stream stream;
  if (stream.push(text) != text) return std::nullopt;
  std::u32string out;
  for (const char byte : text) {
    const auto c = static_cast<unsigned char>(byte);
    if (c < 0x80) {
      out.push_back(c);
    } else if (c < 0xC0) {
      out.back() = (out.back() << 6) | (c & 0x3FU);
    } else {
      out.push_back(c & (c < 0xE0 ? 0x1FU : c < 0xF0 ? 0x0FU : 0x07U));
    }
  }
  return out;
}

std::size_t edit_distance(const std::u32string& a, const std::u32string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string fault_of_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > kMostNameBytes) return fmt::format("it is longer than {} characters", kLongestName);
  const auto characters = characters_of(name);
  if (!characters) return "it is not UTF-8";
  if (characters->size() > kLongestName) return fmt::format("it is longer than {} characters", kLongestName);
  for (const char32_t c : *characters) {
    if (allowed(c)) continue;
    // Other characters could do something to a terminal that shows this.
    if (c > ' ' && c < 0x7F) return fmt::format("it contains {}", static_cast<char>(c));
    return fmt::format("it contains the character U+{:04X}", static_cast<std::uint32_t>(c));
  }
  if (name.front() == '.' || name.front() == ' ') return "it begins with a dot or a space";
  if (name.back() == ' ') return "it ends with a space";
  return {};
}

std::optional<std::size_t> edits_between(std::string_view name, std::string_view other) {
  constexpr std::size_t kMostEdits = 2;
  const auto a = characters_of(name);
  const auto b = characters_of(other);
  if (!a || !b) return std::nullopt;
  const std::size_t edits = edit_distance(*a, *b);
  // Of a name of two characters everything is two edits away.
  const bool similar = edits <= kMostEdits && edits < std::max(a->size(), b->size());
  if (!similar && !other.starts_with(name) && !name.starts_with(other)) return std::nullopt;
  return edits;
}

}  // namespace kazeia
