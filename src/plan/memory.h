// Does it fit, and what would: arithmetic on sizes that somebody else has measured.
#pragma once

#include <cstdint>

namespace kazeia::plan {

// Bytes of one inference state with a context of `context_tokens`, as the inference library would allocate it.
struct StateSample {
  std::uint32_t context_tokens = 0;
  std::uint64_t cache_bytes = 0;    // KV cache and recurrent state
  std::uint64_t compute_bytes = 0;  // buffers of intermediate results
};

// Size of an inference state as a straight line over its context: the recurrent state and most compute buffers
// are fixed, the KV cache and the attention mask grow with every token.
struct StateShape {
  std::uint64_t fixed_bytes = 0;
  std::uint64_t bytes_per_token = 0;

  // Saturates instead of overflowing.
  std::uint64_t bytes(std::uint64_t context_tokens) const;
};

// The line through two samples (`larger` has more context tokens), rounded up. A model with sliding-window
// layers grows less beyond its window than this says: the estimate errs towards "too large".
StateShape state_shape(const StateSample& smaller, const StateSample& larger);

// The largest context whose state needs at most `available_bytes`: a multiple of 256 (the unit in which the KV
// cache is allocated), at most `limit_tokens`; 0 if not even 256 tokens fit.
std::uint32_t largest_context(const StateShape& shape, std::uint64_t available_bytes, std::uint32_t limit_tokens);

// `available_bytes` is what can be allocated; 0 means unknown, and then everything fits.
bool fits(std::uint64_t needed_bytes, std::uint64_t available_bytes);

}  // namespace kazeia::plan
