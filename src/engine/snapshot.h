// The recurrent part of an inference state, kept aside so that an interrupted ubatch can be undone. Upstream
// rolls the KV cache of an aborted batch back by itself, but not a recurrent state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct llama_context;

namespace kazeia {

class RecurrentSnapshot {
 public:
  // Copies the recurrent state after `token_count` tokens (a few KB for the mini model, 53 MB for Qwen3.5-4B). With
  // 0 tokens there is nothing to copy. False if it cannot be copied.
  bool take(llama_context* context, std::size_t token_count);
  // Puts it back and drops everything after it. False if the state is then not what it was.
  bool restore(llama_context* context) const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t token_count_ = 0;
};

// Whether the state of `context` ends exactly after `token_count` tokens, in every part of it.
bool state_ends_at(const llama_context* context, std::size_t token_count);

}  // namespace kazeia
