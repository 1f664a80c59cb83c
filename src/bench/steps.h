// What one measured process does: the same steps for our engine and for upstream's plain API, so that the two sides of
// a comparison cannot differ in what they are asked. What only a chat does is not a step of this kind.
//
// A step is a word: "prefill:512" (from an empty state), "decode:4096:32" (32 tokens at depth 4096). Each reports
// tokens per second under its name without the count: "prefill_512", "decode_4096".
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace kazeia::bench {

struct Step {
  bool decode = false;
  std::int64_t position = 0;  // prompt length, or depth
  std::int64_t tokens = 0;    // decoded tokens
  std::string name;           // "prefill_512", "decode_4096"
};

inline std::optional<Step> parse_step(std::string_view word) {
  const auto number = [](std::string_view text) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
  };
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view kind = word.substr(0, colon);
  const std::string_view rest = word.substr(colon + 1);
  if (kind == "prefill") {
    const auto tokens = number(rest);
    if (!tokens || *tokens == 0) return std::nullopt;
    return Step{false, *tokens, 0, "prefill_" + std::string(rest)};
  }
  const std::size_t second = rest.find(':');
  if (kind != "decode" || second == std::string_view::npos) return std::nullopt;
  const auto depth = number(rest.substr(0, second));
  const auto tokens = number(rest.substr(second + 1));
  if (!depth || !tokens || *tokens == 0) return std::nullopt;
  return Step{true, *depth, *tokens, "decode_" + std::string(rest.substr(0, second))};
}

// The n-th token of a text without meaning, the same for everybody; ordinary ids of any vocabulary over 1000.
inline std::int32_t nth_token(std::int64_t n) {
  return static_cast<std::int32_t>(100 + (n * 7919) % 887);
}

// What is measured. Functions return false on failure.
struct Subject {
  std::function<void()> reset;
  std::function<std::int64_t()> token_count;
  std::function<bool(const std::vector<std::int32_t>&)> prefill;
  std::function<bool(std::int32_t)> decode;
};

// Runs the steps in order; `report` gets a name and tokens per second. `begin`, if given, gets the name and the number
// of tokens right before they are measured. False when the subject failed.
inline bool run_steps(const Subject& subject, const std::vector<Step>& steps,
                      const std::function<void(const std::string&, double)>& report,
                      const std::function<void(const std::string&, std::int64_t)>& begin = {}) {
  const auto prefill = [&](std::int64_t count) {
    std::vector<std::int32_t> prompt;
    for (std::int64_t i = 0; i < count; ++i) prompt.push_back(nth_token(subject.token_count() + i));
    return subject.prefill(prompt);
  };
  // Warm-up: first touches of buffers and caches belong to no step.
  subject.reset();
  if (!prefill(32) || !subject.decode(nth_token(32)) || !subject.decode(nth_token(33))) return false;
  for (const Step& step : steps) {
    if (!step.decode) {
      subject.reset();
      if (begin) begin(step.name, step.position);
      const Stopwatch watch;
      if (!prefill(step.position)) return false;
      report(step.name, static_cast<double>(step.position) * 1000.0 / watch.elapsed_ms());
      continue;
    }
    // Depth 0 is a state of one token: there is nothing to decode from less.
    const std::int64_t depth = std::max<std::int64_t>(step.position, 1);
    if (subject.token_count() > depth) subject.reset();
    while (subject.token_count() < depth) {
      if (!prefill(std::min<std::int64_t>(512, depth - subject.token_count()))) return false;
    }
    if (begin) begin(step.name, step.tokens);
    const Stopwatch watch;
    for (std::int64_t i = 0; i < step.tokens; ++i) {
      if (!subject.decode(nth_token(depth + i))) return false;
    }
    report(step.name, static_cast<double>(step.tokens) * 1000.0 / watch.elapsed_ms());
  }
  return true;
}

}  // namespace kazeia::bench
