// How much of a prompt is already in a timeline.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "engine/timeline.h"

namespace kazeia {

// Brings the timeline to the longest state it can reach that is a proper prefix of `prompt`, and returns its length:
// the caller prefills the rest, which is never empty. The seam for caches that keep more than one state.
using PrefixReuse = std::function<Result<std::size_t>(Timeline& timeline, std::span<const Token> prompt)>;

// Uses what the timeline holds. A model with recurrent state cannot be cut back: it starts again from zero unless
// everything in the timeline is a prefix of the prompt. A poisoned timeline is reset. `prompt` is not empty.
Result<std::size_t> reuse_longest_prefix(Timeline& timeline, std::span<const Token> prompt);

}  // namespace kazeia
