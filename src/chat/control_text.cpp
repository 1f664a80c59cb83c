#include "chat/control_text.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include <fmt/format.h>

#include "llama.h"

namespace kazeia {
namespace {

// Digits and '#' survive whatever templates do to a message: trimming, changing case, writing it as JSON.
std::string numbered_mark(std::uint64_t number) {
  return fmt::format("#{:016}#", number);
}
constexpr std::uint64_t kFirstMark = 7310499273650184;

std::size_t first_character_bytes(std::string_view text) {
  std::size_t n = 1;
  while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0U) == 0x80U) ++n;
  return n;
}

}  // namespace

ControlText::ControlText(const Model& model, std::string_view template_source) : mark_(numbered_mark(kFirstMark)) {
  const llama_vocab* vocabulary = model.vocabulary();
  for (Token token = 0; token < model.vocabulary_size(); ++token) {
    const int attributes = llama_vocab_get_attr(vocabulary, token);
    const bool control = (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
    const bool defined = (attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) != 0;
    if (!control && !defined) continue;
    const char* raw = llama_vocab_get_text(vocabulary, token);
    const std::string_view text = raw == nullptr ? "" : raw;
    if (first_character_bytes(text) >= text.size()) continue;
    if (control || template_source.find(text) != std::string_view::npos) markers_.emplace_back(text);
  }
}

bool ControlText::contains_marker(std::string_view text) const {
  return std::any_of(markers_.begin(), markers_.end(),
                     [&](const std::string& marker) { return text.find(marker) != std::string_view::npos; });
}

std::string ControlText::shield(std::string_view text) const {
  std::set<std::size_t> cuts;
  for (const std::string& marker : markers_) {
    for (std::size_t at = text.find(marker); at != std::string_view::npos; at = text.find(marker, at + 1)) {
      cuts.insert(at + first_character_bytes(marker));
    }
  }
  std::string out;
  out.reserve(text.size() + cuts.size() * mark_.size());
  std::size_t done = 0;
  for (const std::size_t cut : cuts) {
    out += text.substr(done, cut - done);
    out += mark_;
    done = cut;
  }
  out += text.substr(done);
  return out;
}

std::vector<std::string> ControlText::split(std::string_view rendered) const {
  std::vector<std::string> pieces;
  std::size_t done = 0;
  for (std::size_t at = rendered.find(mark_); at != std::string_view::npos; at = rendered.find(mark_, done)) {
    pieces.emplace_back(rendered.substr(done, at - done));
    done = at + mark_.size();
  }
  pieces.emplace_back(rendered.substr(done));
  return pieces;
}

void ControlText::choose_mark(const std::vector<std::string_view>& texts) {
  for (std::uint64_t number = kFirstMark;; ++number) {
    mark_ = numbered_mark(number);
    const bool taken = std::any_of(texts.begin(), texts.end(),
                                   [&](std::string_view text) { return text.find(mark_) != std::string_view::npos; });
    if (!taken) return;
  }
}

}  // namespace kazeia
