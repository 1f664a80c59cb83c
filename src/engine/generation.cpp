#include "engine/generation.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/stop_strings.h"
#include "engine/utf8.h"

namespace kazeia {
namespace {

// When the grammar takes over: after a marker in the raw bytes of the tokens, control tokens included.
class ConstraintStart {
 public:
  explicit ConstraintStart(const std::string& marker) : marker_(marker), started_(marker.empty()) {}
  bool started() const { return started_; }
  void see(const std::string& bytes) {
    if (started_) return;
    recent_ += bytes;
    started_ = recent_.find(marker_) != std::string::npos;
    if (recent_.size() > marker_.size()) recent_.erase(0, recent_.size() - marker_.size());
  }

 private:
  const std::string& marker_;
  std::string recent_;
  bool started_;
};

// From bytes of tokens to text that is final.
class TextOutput {
 public:
  TextOutput(const GenerationOptions& options, const TextSink& sink, std::string& text)
      : stops_(options.stop_strings), sink_(sink), text_(text) {}

  // True if a stop string has appeared.
  bool push(const std::string& bytes) {
    emit(stops_.push(utf8_.push(bytes)));
    return stops_.stopped();
  }
  void finish() { emit(stops_.flush()); }

 private:
  void emit(const std::string& text) {
    if (text.empty()) return;
    text_ += text;
    if (sink_) sink_(text);
  }

  Utf8Stream utf8_;
  StopStrings stops_;
  const TextSink& sink_;
  std::string& text_;
};

Status validate(const Timeline& timeline, const GenerationOptions& options) {
  if (options.max_tokens < -1) {
    return Error(ErrorCode::kUsage, fmt::format("max_tokens is {}, must be -1 (no limit) or more", options.max_tokens));
  }
  if (std::any_of(options.stop_strings.begin(), options.stop_strings.end(), [](const auto& s) { return s.empty(); })) {
    return Error(ErrorCode::kUsage, "a stop string is empty", "Remove it");
  }
  if (timeline.logits().empty()) {
    return Error(ErrorCode::kUsage, "there is no prompt to continue from", "Read a prompt first");
  }
  return {};
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "end";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kConstraint:
      return "constraint";
  }
  return "unknown";
}

double GenerationResult::decode_tps() const {
  if (tokens.size() < 2 || decode_ms <= 0) return 0;
  return static_cast<double>(tokens.size() - 1) * 1000.0 / decode_ms;
}

Result<GenerationResult> generate(Timeline& timeline, Sampler& sampler, const GenerationOptions& options,
                                  const TextSink& sink) {
  KAZEIA_TRY(validate(timeline, options));
  const Model& model = timeline.model();
  GenerationResult result;
  TextOutput output(options, sink, result.text);
  ConstraintStart constraint(options.constrain_after);
  const Stopwatch watch;

  const auto is_end = [&](Token token) {
    return model.ends_generation(token) ||
           std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end();
  };
  for (bool running = true; running;) {
    // Checked before a token is chosen, so that every token of the result is also in the timeline.
    if (options.cancel != nullptr && options.cancel->requested()) {
      result.reason = StopReason::kCancelled;
      break;
    }
    if (options.max_tokens >= 0 && std::cmp_greater_equal(result.tokens.size(), options.max_tokens)) {
      result.reason = StopReason::kMaxTokens;
      break;
    }
    if (timeline.free_tokens() == 0) {
      result.reason = StopReason::kContextFull;
      break;
    }
    const bool constrained = constraint.started();
    KAZEIA_ASSIGN(const Token token, sampler.sample(timeline.logits(), constrained));
    result.tokens.push_back(token);
    if (result.tokens.size() == 1) {
      result.first_token_ms = watch.elapsed_ms();
    } else {
      result.decode_ms = watch.elapsed_ms() - result.first_token_ms;
    }
    if (is_end(token)) {
      result.reason = StopReason::kEndOfText;
      break;
    }
    constraint.see(model.piece(token, true));
    if (output.push(model.piece(token))) {
      result.reason = StopReason::kStopString;
      running = false;
    } else if (constrained && sampler.constraint_complete()) {
      result.reason = StopReason::kConstraint;
      running = false;
    }
    KAZEIA_TRY(timeline.decode(token));
  }
  output.finish();
  return result;
}

}  // namespace kazeia
