// The part of a timeline that moves its state: out in parts, and back.

#include <algorithm>

#include <fmt/format.h>

#include "engine/timeline.h"
#include "llama.h"

namespace kazeia {

Result<StateLayout> Timeline::state_layout() const {
  KAZEIA_TRY(check_room({}));
  return layout_of_state(context_, tokens_);
}

Status Timeline::copy_attention(std::size_t from, std::size_t to, const ByteSink& sink) const {
  KAZEIA_TRY(check_room({}));
  if (from > to || to > tokens_.size()) {
    return Error(ErrorCode::kUsage, fmt::format("tokens {} to {} are not among {}", from, to, tokens_.size()));
  }
  return copy_attention_rows(context_, tokens_, from, to, sink);
}

Status Timeline::copy_recurrent(const ByteSink& sink) const {
  KAZEIA_TRY(check_room({}));
  return copy_recurrent_rows(context_, tokens_, sink);
}

Status Timeline::restore(std::span<const Token> tokens, std::size_t kept, std::span<const AttentionRows> rows,
                         std::span<const std::byte> recurrent, const StateLayout& layout) {
  if (poisoned_ && kept == 0) reset();
  KAZEIA_TRY(check_room({}));
  if (tokens.empty() || tokens.size() > capacity_) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("a state of {} tokens does not fit a context of {}", tokens.size(), capacity_));
  }
  const bool same = kept <= tokens_.size() && kept <= tokens.size() &&
                    std::equal(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(kept), tokens.begin());
  if (!same) return Error(ErrorCode::kUsage, fmt::format("the first {} tokens are others", kept));
  for (const Token token : tokens) {
    if (token < 0 || token >= model_->vocabulary_size()) {
      return Error(ErrorCode::kUsage, fmt::format("token {} is not in the vocabulary", token));
    }
  }
  has_logits_ = false;
  Tokens restored(tokens.begin(), tokens.end());  // `tokens` may be a part of tokens_
  if (Status put = put_state(context_, layout, restored, kept, rows, recurrent); !put.ok()) {
    // kUsage: nothing was touched.
    if (put.error().code() != ErrorCode::kUsage) reset();
    return put;
  }
  tokens_ = std::move(restored);
  return {};
}

Status Timeline::append_unread(std::span<const Token> more) {
  KAZEIA_TRY(check_room(more));
  Tokens longer = tokens_;
  longer.insert(longer.end(), more.begin(), more.end());
  if (Status put = repeat_attention_rows(context_, longer, tokens_.size()); !put.ok()) {
    if (put.error().code() != ErrorCode::kUnsupported) reset();
    return put;
  }
  has_logits_ = false;
  tokens_ = std::move(longer);
  return {};
}

}  // namespace kazeia
