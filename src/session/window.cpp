#include "session/window.h"

#include <algorithm>
#include <vector>

namespace kazeia {
namespace {

std::size_t system_messages(const Conversation& conversation) {
  return !conversation.empty() && conversation.messages().front().role == Role::kSystem ? 1 : 0;
}

// Counts of left out messages at which an exchange begins, ascending.
std::vector<std::size_t> exchange_starts(const Conversation& conversation) {
  const std::size_t system = system_messages(conversation);
  std::vector<std::size_t> starts;
  for (std::size_t i = system; i < conversation.messages().size(); ++i) {
    if (conversation.messages()[i].role == Role::kUser) starts.push_back(i - system);
  }
  return starts;
}

}  // namespace

Conversation without_oldest(const Conversation& conversation, std::size_t left_out) {
  const std::size_t system = system_messages(conversation);
  Conversation rest;
  for (std::size_t i = 0; i < conversation.messages().size(); ++i) {
    if (i < system || i >= system + left_out) rest.add(conversation.messages()[i]);
  }
  return rest;
}

Result<Window> fit_window(const Conversation& conversation, std::size_t left_out, std::size_t context_tokens,
                          std::size_t answer_tokens, const PromptLength& length) {
  const std::vector<std::size_t> starts = exchange_starts(conversation);
  Window window;
  // After an edit fewer messages may be there than were left out.
  window.left_out = starts.empty() ? 0 : std::min(left_out, starts.back());
  KAZEIA_ASSIGN(window.prompt_tokens, length(without_oldest(conversation, window.left_out)));
  if (window.prompt_tokens + answer_tokens <= context_tokens) return window;
  // By halves: a rendering of a long conversation takes milliseconds, and somebody waits.
  auto low = std::upper_bound(starts.begin(), starts.end(), window.left_out);
  auto high = starts.end();
  while (low != high) {
    const auto middle = low + (high - low) / 2;
    KAZEIA_ASSIGN(const std::size_t tokens, length(without_oldest(conversation, *middle)));
    if (tokens <= context_tokens / 2) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (starts.empty()) return window;
  window.left_out = low == starts.end() ? starts.back() : *low;
  KAZEIA_ASSIGN(window.prompt_tokens, length(without_oldest(conversation, window.left_out)));
  return window;
}

}  // namespace kazeia
