// FLASH_ATTN_EXT over an f16 cache, by our own kernels (attention/attention.h), as ggml-cpu's threads run it. Whatever
// the kernels cannot do stays upstream's: other cache types, sinks, ALiBi, a soft cap, several sequences at once.
#pragma once

#include <cstddef>

struct ggml_compute_params;
struct ggml_tensor;

namespace kazeia::tiles {

// While one of these lives, graphs that this thread has computed use our attention (`own`) or upstream's. Without one,
// upstream's. Other threads' graphs are not affected.
class [[nodiscard]] AttentionChoice {
 public:
  explicit AttentionChoice(bool own);
  ~AttentionChoice();
  AttentionChoice(const AttentionChoice&) = delete;
  AttentionChoice& operator=(const AttentionChoice&) = delete;

 private:
  bool before_;
};

// The kernels can do it; by shapes and types alone.
bool is_attention(const ggml_tensor* op);

// Upstream asks for the scratch memory of every op of a graph on the thread that has it computed, before other threads
// see it. What AttentionChoice says there is noted in the op, for all threads of the team to agree. False: upstream's.
bool plan_attention(const ggml_tensor* op, int threads, std::size_t& scratch_bytes);

// Called by every thread of the team at once. False, for all of them: not planned to be ours, nothing was done.
bool run_attention(const ggml_compute_params* params, ggml_tensor* op);

}  // namespace kazeia::tiles
