// Copies of a recurrent layer that ggml-cpu leaves to one thread, shared by all of them.
//
// ggml-cpu asks its extra buffer types before every op, whatever buffer the op is on; that is how this gets in without
// a patch. Two ops are taken, because they were measured (docs/decisions/0011), and nothing is computed differently:
// - GET_ROWS of very few very long f32 rows: a recurrent layer reads its whole state with one GET_ROWS of one row (2 MB
// a
//   layer of Qwen3.5-4B, 52.7 MB a token). Upstream shares GET_ROWS out by rows.
// - CONCAT along dimension 0 of f32 matrices: the convolution's last columns in front of a transposed matrix
//   ([3, 8192] and [tokens, 8192]). Upstream shares CONCAT out by dimension 2, and walks the transposed matrix against
//   its memory order.
#pragma once

struct ggml_tensor;
struct ggml_compute_params;

namespace kazeia::tiles {

bool is_recurrent_copy(const ggml_tensor* op);

// Called by every thread of the team at once. False: not a case for us after all, nothing was done, upstream runs it;
// the answer is the same for all threads of the team.
bool run_recurrent_copy(const ggml_compute_params* params, ggml_tensor* op);

}  // namespace kazeia::tiles
