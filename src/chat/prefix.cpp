#include "chat/prefix.h"

#include <algorithm>

namespace kazeia {

Result<std::size_t> reuse_longest_prefix(Timeline& timeline, std::span<const Token> prompt) {
  if (timeline.poisoned()) timeline.reset();
  const Tokens& have = timeline.tokens();
  // One token at least has to be read again: the logits are those after the last one.
  const std::size_t limit = std::min(have.size(), prompt.size() - 1);
  const auto difference =
      std::mismatch(have.begin(), have.begin() + static_cast<std::ptrdiff_t>(limit), prompt.begin());
  const auto shared = static_cast<std::size_t>(difference.first - have.begin());
  if (shared == have.size()) return shared;
  if (shared == 0 || timeline.model().has_recurrent_state()) {
    timeline.reset();
    return std::size_t{0};
  }
  KAZEIA_TRY(timeline.truncate(shared));
  return shared;
}

Status read_behind_longest_prefix(Timeline& timeline, const PromptToRead& prompt, std::size_t& reused) {
  KAZEIA_ASSIGN(reused, reuse_longest_prefix(timeline, prompt.tokens));
  return timeline.prefill(prompt.tokens.subspan(reused), prompt.progress, prompt.cancel);
}

}  // namespace kazeia
