// MUL_MAT and GET_ROWS over tiles, as ggml-cpu's threads run them.
#pragma once

#include <cstddef>

struct ggml_tensor;
struct ggml_compute_params;

namespace kazeia::tiles {

// The weights (op->src[0]) are in tiles; can we compute the op?
bool supports(const ggml_tensor* op);

// Bytes of scratch memory that all `threads` need together.
std::size_t scratch_bytes(int threads, const ggml_tensor* op);

// Called by every thread of the team at once; returns when this thread's part is done.
void compute(const ggml_compute_params* params, ggml_tensor* op);

}  // namespace kazeia::tiles
