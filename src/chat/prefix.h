// How much of a prompt is already in a timeline.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "engine/timeline.h"

namespace kazeia {

struct PromptToRead {
  std::span<const Token> tokens;                // not empty
  std::span<const std::size_t> message_starts;  // where a message begins, ascending; the last one is the answer
  Timeline::Progress progress;                  // over the tokens that have to be read
  const CancelFlag* cancel = nullptr;
};

// Makes the timeline hold exactly the prompt, with logits after its last token. `reused` becomes the number of tokens
// that did not have to be read, before any of the others is. Errors as Timeline::prefill(). The seam for caches that
// keep more than one state.
using PromptReader = std::function<Status(Timeline& timeline, const PromptToRead& prompt, std::size_t& reused)>;

// Uses what the timeline holds.
Status read_behind_longest_prefix(Timeline& timeline, const PromptToRead& prompt, std::size_t& reused);

// Brings the timeline to the longest state it can reach that is a proper prefix of `prompt`, and returns its length:
// the caller prefills the rest, which is never empty. A model with recurrent state cannot be cut back: it starts again
// from zero unless everything in the timeline is a prefix of the prompt. A poisoned timeline is reset. `prompt` is not
// empty.
Result<std::size_t> reuse_longest_prefix(Timeline& timeline, std::span<const Token> prompt);

}  // namespace kazeia
