#include "engine/snapshot.h"

#include <exception>

#include "llama.h"

namespace kazeia {

bool RecurrentSnapshot::take(llama_context* context, std::size_t token_count) {
  token_count_ = token_count;
  bytes_.clear();
  if (token_count == 0) return true;
  try {
    bytes_.resize(llama_state_seq_get_size_ext(context, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
    return !bytes_.empty() && llama_state_seq_get_data_ext(context, bytes_.data(), bytes_.size(), 0,
                                                           LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == bytes_.size();
  } catch (const std::exception&) {
    return false;
  }
}

bool RecurrentSnapshot::restore(llama_context* context) const {
  llama_memory_t memory = llama_get_memory(context);
  try {
    if (token_count_ == 0) {
      llama_memory_clear(memory, false);
      return state_ends_at(context, 0);
    }
    if (bytes_.empty() || llama_state_seq_set_data_ext(context, bytes_.data(), bytes_.size(), 0,
                                                       LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != bytes_.size()) {
      return false;
    }
    // The recurrent part now ends before this position, so upstream agrees to cut the attention part there.
    if (!llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(token_count_), -1)) return false;
  } catch (const std::exception&) {
    return false;
  }
  return state_ends_at(context, token_count_);
}

bool state_ends_at(const llama_context* context, std::size_t token_count) {
  // For a hybrid state upstream answers with the smaller end of its two parts.
  return llama_memory_seq_pos_max(llama_get_memory(context), 0) == static_cast<llama_pos>(token_count) - 1;
}

}  // namespace kazeia
