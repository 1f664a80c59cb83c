// How much memory an inference state takes, and would take: measured from upstream, not guessed from metadata,
// so that it holds for every architecture.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/memory.h"

struct llama_context;
struct llama_context_params;
struct llama_model;

namespace kazeia {

// Of a context that exists: KV cache, recurrent state and compute buffers.
plan::StateSample measure_state(const llama_context* context);

// From two contexts of one and two ubatches (rounded up to 256) that are made like `params` and dropped again:
// some 10 ms and, for a moment, the memory of the recurrent state. kEngine if upstream cannot make one.
Result<plan::StateShape> estimate_state(llama_model* model, const llama_context_params& params);

}  // namespace kazeia
