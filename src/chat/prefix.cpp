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

}  // namespace kazeia
