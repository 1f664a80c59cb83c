#include "plain_text.h"

#include <algorithm>
#include <array>

namespace kazeia::cli {

Result<std::string> plain_text(const Model& model, std::size_t count, std::uint32_t seed) {
  static constexpr std::array kWords{
      "river",  "stone",  "garden", "window",  "morning", "paper", "bridge",  "winter", "letter",  "mountain", "table",
      "summer", "road",   "forest", "kitchen", "silver",  "water", "village", "music",  "evening", "harbour",  "orange",
      "travel", "field",  "engine", "market",  "island",  "cloud", "history", "candle", "station", "simple",   "green",
      "house",  "answer", "number", "story",   "friend",  "north", "ocean",   "bread"};
  std::string text;
  // A word is one token at least.
  for (std::size_t i = 0; i <= count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    if (i > 0) text += ' ';
    text += kWords[(seed >> 16) % kWords.size()];
  }
  KAZEIA_ASSIGN(const Tokens whole, model.tokenize(text, /*add_special=*/false, /*parse_special=*/false));
  std::size_t kept = std::min(count, whole.size());
  for (int attempt = 0;; ++attempt) {
    text.clear();
    for (std::size_t i = 0; i < kept; ++i) text += model.piece(whole[i]);
    KAZEIA_ASSIGN(const Tokens cut, model.tokenize(text, false, false));
    if (cut.size() == count || attempt == 4) return text;
    kept = std::clamp<std::size_t>(kept + count - cut.size(), 1, whole.size());
  }
}

}  // namespace kazeia::cli
