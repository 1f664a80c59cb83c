// Which messages of a long conversation a prompt still contains.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"
#include "chat/conversation.h"

namespace kazeia {

// The conversation without the first `left_out` messages behind its system message.
Conversation without_oldest(const Conversation& conversation, std::size_t left_out);

// Tokens of the prompt for a conversation.
using PromptLength = std::function<Result<std::size_t>(const Conversation& conversation)>;

struct Window {
  std::size_t left_out = 0;  // messages behind the system message
  std::size_t prompt_tokens = 0;
};

// As many messages as leave `answer_tokens` of the context free. If all of them (but those already left out) do, that
// is it. Otherwise whole exchanges, a user's message and what was answered, are left out from the oldest on, until the
// prompt fills at most half of the context: the rest is then read again once and not at every turn. The last exchange
// always stays, whether it fits or not. Errors: those of `length`.
Result<Window> fit_window(const Conversation& conversation, std::size_t left_out, std::size_t context_tokens,
                          std::size_t answer_tokens, const PromptLength& length);

}  // namespace kazeia
