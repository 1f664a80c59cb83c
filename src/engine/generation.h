// The sampling loop: token after token until something says stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/sampling.h"
#include "engine/timeline.h"

namespace kazeia {

enum class StopReason {
  kEndOfText,   // the model ended its turn, or a stop token came
  kStopString,  // one of stop_strings appeared; it is not part of the text
  kMaxTokens,
  kContextFull,
  kCancelled,
  kConstraint,  // the grammar is complete
};
std::string_view stop_reason_name(StopReason reason);  // "end", "stop_string", "max_tokens", ...

struct GenerationOptions {
  std::int64_t max_tokens = -1;  // -1 = until the context is full; >= 0 otherwise
  std::vector<std::string> stop_strings;
  std::vector<Token> stop_tokens;      // besides the model's own
  const CancelFlag* cancel = nullptr;  // acts at the next token boundary
  // The grammar starts after this text has been generated ("</think>"); empty = from the first token.
  std::string constrain_after;
};

struct GenerationResult {
  std::string text;  // complete UTF-8 characters only, without the stop string
  Tokens tokens;     // as sampled, the end token included
  StopReason reason = StopReason::kEndOfText;
  double first_token_ms = 0;  // from the call to the first sampled token
  double decode_ms = 0;       // from the first sampled token to the last
  // Tokens per second after the first one; 0 if fewer than two were generated.
  double decode_tps() const;
};

// Called with text that is final: whole characters, and never the beginning of a stop string.
using TextSink = std::function<void(std::string_view text)>;

// Starts from timeline.logits() (so prefill first; kUsage otherwise). Every sampled token except a final
// end/stop token is decoded into the timeline, so tokens() continues the conversation. On an error the text so
// far has already gone to the sink.
Result<GenerationResult> generate(Timeline& timeline, Sampler& sampler, const GenerationOptions& options,
                                  const TextSink& sink = {});

}  // namespace kazeia
