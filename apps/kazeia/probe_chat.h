// What a measured process does as a chat does it, with template, tokeniser, sampling and prefix cache. Told as
// bench/child_line.h says.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/model.h"
#include "engine/npu_use.h"
#include "engine/timeline.h"
#include "session/prefix_cache.h"

namespace kazeia::cli {

// "ttft": a short question in an empty state; "turn:700:64": a message of 700 tokens to a conversation that has begun,
// at most 64 generated; "soak:3600:30": such turns for an hour, reported every 30 seconds.
struct ChatStep {
  enum class Kind { kFirstToken, kTurn, kSoak };
  Kind kind = Kind::kFirstToken;
  std::size_t new_tokens = 0;
  std::size_t answer_tokens = 0;
  double seconds = 0;
  double interval_seconds = 0;
};
std::optional<ChatStep> parse_chat_step(std::string_view word);

// Tells ttft_ms: until the first token of the answer to a short question is there. A model that cannot chat is a fact,
// not an error.
Status measure_first_token(const std::shared_ptr<const Model>& model, Timeline& timeline);

// The turns and soaks of `steps`; takes the timeline. `use` becomes what its NPU did.
// A turn tells turn_ttft_ms, turn_decode and turn_peak_rss_bytes. A soak tells every interval soak_ttft_ms,
// soak_rss_bytes and, last, soak_decode.
Status measure_chat(const std::shared_ptr<const Model>& model, std::unique_ptr<Timeline> timeline,
                    const PrefixCacheOptions& checkpoints, std::span<const ChatStep> steps, NpuUse& use);

}  // namespace kazeia::cli
