// What one measured process does: the same steps for our engine and for upstream's plain API, so that the two sides of
// a comparison cannot differ in what they are asked. What only a chat does is not a step of this kind.
//
// A step is a word: "prefill:512" (from an empty state), "prefill:512@4096" (behind 4096 tokens), "decode:4096:32" (32
// tokens at depth 4096). Each reports tokens per second: "prefill_512", "prefill_512_at_4096", "decode_4096".
//
// Depths over kReadDepth are not read: the attention rows of a few tokens that were are repeated. A step takes the
// same time behind them, and a depth of 32,768 takes seconds, not an hour.
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
  std::int64_t depth = 0;   // tokens before it
  std::int64_t tokens = 0;  // that are measured
  std::string name;         // "prefill_512", "decode_4096"
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
    const std::size_t at = rest.find('@');
    const auto tokens = number(rest.substr(0, at));
    if (!tokens || *tokens == 0) return std::nullopt;
    std::string name = "prefill_" + std::to_string(*tokens);
    if (at == std::string_view::npos) return Step{false, 0, *tokens, name};
    const auto depth = number(rest.substr(at + 1));
    if (!depth || *depth == 0) return std::nullopt;
    return Step{false, *depth, *tokens, name + "_at_" + std::to_string(*depth)};
  }
  const std::size_t second = rest.find(':');
  if (kind != "decode" || second == std::string_view::npos) return std::nullopt;
  const auto depth = number(rest.substr(0, second));
  const auto tokens = number(rest.substr(second + 1));
  if (!depth || !tokens || *tokens == 0) return std::nullopt;
  return Step{true, *depth, *tokens, "decode_" + std::to_string(*depth)};
}

// The n-th token of a text without meaning, the same for everybody; ordinary ids of any vocabulary over 1000.
inline std::int32_t nth_token(std::int64_t n) {
  return static_cast<std::int32_t>(100 + (n * 7919) % 887);
}

inline std::vector<std::int32_t> tokens_between(std::int64_t from, std::int64_t to) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = from; i < to; ++i) tokens.push_back(nth_token(i));
  return tokens;
}

enum class Deepened { kDone, kUnsupported, kFailed };

// What is measured. Functions that return bool return false on failure.
struct Subject {
  std::function<void()> reset;
  std::function<std::int64_t()> token_count;
  std::function<bool(const std::vector<std::int32_t>&)> prefill;
  std::function<bool(std::int32_t)> decode;
  // Makes the state one of `depth` tokens, more than there are, without reading them. kUnsupported: it is as it was.
  std::function<Deepened(std::int64_t depth)> deepen;
};

// How the depths over kReadDepth were made: "repeated rows", "read", or empty if there was none.
inline constexpr const char* kRepeatedRows = "repeated rows";
inline constexpr const char* kReadRows = "read";

inline constexpr std::int64_t kReadDepth = 1024;  // a depth that is always read
inline constexpr std::int64_t kReadBefore = 64;   // tokens that are read in front of repeated rows
inline constexpr std::int64_t kPiece = 512;       // widest piece of a depth that is read

class StepRunner {
 public:
  explicit StepRunner(const Subject& subject) : subject_(subject) {}

  // Runs the steps in order; `report` gets a name and tokens per second. `begin`, if given, gets the name and the
  // number of tokens right before they are measured. False when the subject failed.
  bool run(const std::vector<Step>& steps, const std::function<void(const std::string&, double)>& report,
           const std::function<void(const std::string&, std::int64_t)>& begin = {}) {
    // Warm-up: first touches of buffers and caches belong to no step.
    subject_.reset();
    if (!subject_.prefill(tokens_between(0, 32)) || !decode(2)) return false;
    for (const Step& step : steps) {
      if (!go_to(step)) return false;
      const std::int64_t count = subject_.token_count();
      const std::vector<std::int32_t> prompt =
          step.decode ? std::vector<std::int32_t>() : tokens_between(count, count + step.tokens);
      if (begin) begin(step.name, step.tokens);
      const Stopwatch watch;
      if (step.decode ? !decode(step.tokens) : !subject_.prefill(prompt)) return false;
      report(step.name, static_cast<double>(step.tokens) * 1000.0 / watch.elapsed_ms());
    }
    return true;
  }

  const std::string& depth_made() const { return depth_made_; }

 private:
  bool decode(std::int64_t tokens) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (!subject_.decode(nth_token(subject_.token_count()))) return false;
    }
    return true;
  }

  bool go_to(const Step& step) {
    // Decoding at depth 0 is from a state of one token: there is nothing to decode from less.
    const std::int64_t depth = step.decode ? std::max<std::int64_t>(step.depth, 1) : step.depth;
    if (subject_.token_count() > depth || depth == 0) subject_.reset();
    if (depth <= kReadDepth || subject_.token_count() == depth) return read_to(depth);
    if (!read_to(std::min(depth, std::max(kReadBefore, subject_.token_count())))) return false;
    const Deepened deepened = subject_.deepen(depth);
    if (deepened == Deepened::kFailed) return false;
    depth_made_ = deepened == Deepened::kDone ? kRepeatedRows : kReadRows;
    return read_to(depth);
  }

  bool read_to(std::int64_t depth) {
    while (subject_.token_count() < depth) {
      const std::int64_t count = subject_.token_count();
      if (!subject_.prefill(tokens_between(count, std::min(depth, count + kPiece)))) return false;
    }
    return true;
  }

  const Subject& subject_;
  std::string depth_made_;
};

}  // namespace kazeia::bench
