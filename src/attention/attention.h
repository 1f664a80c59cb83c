// Attention over an f16 KV cache: softmax(scale * K q + mask) V. Two ways, for a few tokens and for many.
//
// *A few tokens* (decode) are bound by memory. A KV head's rows are read once for all query heads that share it. The
// positions are cut into chunks; an item is one chunk of some KV heads, if possible of all: their rows lie side by
// side, and memory is read from its beginning to its end. It leaves partial results (largest score, sum of weights,
// weighted sum of V), and a reduction joins the chunks of a row in their order. *Many tokens* (prefill) are bound by
// arithmetic: an item is a block of tokens with all query heads of one KV head, and matrix products (wide.h). How work
// is cut depends on shapes alone, so that the same bits come out whatever the number of threads and whoever computes
// which item.
//
// Arithmetic is f32: K and V are widened in registers, exp() is a polynomial with a relative error below 3e-7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kazeia::attention {

inline constexpr std::int64_t kQueriesAtOnce = 32;   // heads x rows of an item, if they are of several KV heads
inline constexpr std::int64_t kFewRows = 8;          // query tokens; more are many
inline constexpr std::int64_t kMostChunk = 256;      // positions
inline constexpr std::int64_t kPanel = 24;           // of many tokens: queries that are computed side by side,
inline constexpr std::int64_t kMostPanels = 4;       // panels of an item,
inline constexpr std::int64_t kBlock = 64;           // positions between two looks at the largest score
inline constexpr std::int64_t kDimensionStep = 32;   // a head's dimension is a multiple of it,
inline constexpr std::int64_t kMostDimension = 512;  // up to this one

// All strides in bytes. Rows (of `dimension` elements) are contiguous and aligned as their elements are.
struct Task {
  std::int64_t dimension = 0;  // of K and V
  std::int64_t heads = 0;      // a multiple of kv_heads; heads / kv_heads neighbours share one
  std::int64_t kv_heads = 0;
  std::int64_t rows = 0;  // query tokens
  std::int64_t positions = 0;
  float scale = 1;
  const std::byte* q = nullptr;  // f32 [rows, heads, dimension]
  std::size_t q_row_stride = 0;
  std::size_t q_head_stride = 0;
  const std::byte* k = nullptr;  // f16 [positions, kv_heads, dimension]
  std::size_t k_position_stride = 0;
  std::size_t k_head_stride = 0;
  const std::byte* v = nullptr;  // as k
  std::size_t v_position_stride = 0;
  std::size_t v_head_stride = 0;
  // f16 [rows, positions], added to the scores; null = nothing is. A position at which every row has -inf is not read.
  const std::byte* mask = nullptr;
  std::size_t mask_row_stride = 0;
  std::byte* out = nullptr;  // f32 [rows, heads, dimension]; a row that is masked everywhere becomes zero
  std::size_t out_row_stride = 0;
  std::size_t out_head_stride = 0;

  bool is_valid() const;  // the ranges above; not the pointers
  bool is_wide() const { return rows > kFewRows; }

  // ---- of a few tokens
  std::int64_t chunk_positions() const;
  std::int64_t chunks() const;
  std::int64_t kv_heads_at_once() const;  // of an item; divides kv_heads
  std::int64_t items() const { return chunks() * (kv_heads / kv_heads_at_once()); }
  std::int64_t results() const { return rows * heads; }
  // Partial results of a chunk and KV head: [rows * heads / kv_heads][dimension] weighted sums, then as many pairs of
  // largest score and sum of weights. In floats; a multiple of a cache line.
  std::size_t partial_floats() const;
  std::size_t scratch_bytes() const;  // of all partial results

  // ---- of many tokens
  std::int64_t block_rows() const;  // tokens of an item
  std::int64_t blocks() const;
  std::int64_t wide_items() const { return kv_heads * blocks(); }
  std::int64_t wide_row_floats() const;    // between two widened rows: a cache line more than a row has
  std::size_t wide_scratch_bytes() const;  // of one thread; a multiple of a cache line
};

// Items and results may be computed in any order and by any thread; memory is 64-byte aligned.
struct KernelSet {
  std::string_view name;  // "scalar", "avx2", "neon"
  // Of a few tokens: all items, then all results. `partials` has scratch_bytes() and is everybody's.
  void (*attend)(const Task& task, std::int64_t item, float* partials);
  void (*reduce)(const Task& task, std::int64_t result, const float* partials);
  // Of many. `scratch` has wide_scratch_bytes() and is the thread's own.
  void (*attend_wide)(const Task& task, std::int64_t item, float* scratch);
};

// Every set that this machine can run, best first; the last one is always "scalar".
std::span<const KernelSet* const> available_kernels();
// The one that goes with the tile kernels in use, which KAZEIA_KERNELS may choose (tiles/kernels.h).
const KernelSet& kernels();

const KernelSet& scalar_kernels();
#if defined(__x86_64__)
const KernelSet& avx2_kernels();
#elif defined(__aarch64__)
const KernelSet& neon_kernels();
#endif

}  // namespace kazeia::attention
