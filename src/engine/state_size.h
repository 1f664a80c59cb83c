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

// A quick and generous answer from the model's metadata: twice the KV cache of a model whose every layer attends, the
// largest recurrent state its metadata allow for, and 1 GiB of compute buffers. Two throw-away contexts of a 4B model
// cost 0.15 s of every start; a state that fits a multiple of this needs no measuring.
std::uint64_t generous_state_bytes(const llama_model* model, const llama_context_params& params);

}  // namespace kazeia
