// Attention of many tokens, as a prompt has them: two matrix products for every block of positions.
//
// An item is a block of query tokens with all heads of one KV head; "queries" are its pairs of token and head, in
// panels of kPanel that lie side by side in vectors. Scores are [position][query] and results [dimension][query], so
// that both products have the same inner loop, and softmax runs down the columns with no operation across a vector's
// lanes. K and V are widened once for all queries of the item. A query's largest score so far, and the sum of its
// weights, are carried from block to block; a block is summed up by itself first, which rounds less.
//
// For the kernel files, after lanes.h, which says what `L` has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"
#include "attention/lanes.h"

namespace kazeia::attention {

constexpr std::int64_t kRowsAtOnce = 4;            // of the result of a product, all in registers
constexpr std::int64_t kSumStep = 128;             // dimensions that are summed up by themselves
constexpr float kLowestScore = -1e30f;             // "none yet": finite, so that differences are numbers
constexpr std::uint16_t kHiddenPosition = 0xfc00;  // -inf as f16

// What an item works on, in the calling thread's scratch memory.
struct WideBlock {
  std::int64_t dimension;
  std::int64_t row_stride;  // of `rows`, floats
  std::int64_t first_token, tokens, group, kv_head;
  std::int64_t queries, panels;
  float* q;        // [panel][dimension][kPanel], times the scale
  float* out;      // as q
  float* scores;   // [panel][kBlock][kPanel], then weights
  float* masks;    // as scores
  float* largest;  // [panel][kPanel]
  float* sums;     // as largest
  float* rows;     // [kBlock][row_stride], of K or V
};

// c[row][query] = (+=) sum over `steps` of a[row][step] * b[step][query], for kRowsAtOnce rows and a panel.
template <typename L, bool kAdd, bool kStepsAreNeighbours>
[[gnu::always_inline]] inline void product(const float* a, std::int64_t stride, const float* b, std::int64_t steps,
                                           float* c) {
  using Vector = typename L::Vector;
  constexpr int kVectors = static_cast<int>(kPanel / L::kLanes);
  Vector total[kRowsAtOnce][kVectors];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int v = 0; v < kVectors; ++v) total[r][v] = L::broadcast(0);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    Vector column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = L::load(b + step * kPanel + v * L::kLanes);
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const Vector one = L::broadcast(kStepsAreNeighbours ? a[r * stride + step] : a[step * stride + r]);
      for (int v = 0; v < kVectors; ++v) total[r][v] = L::fma(one, column[v], total[r][v]);
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* one = c + r * kPanel + v * L::kLanes;
      L::store(one, kAdd ? L::add(L::load(one), total[r][v]) : total[r][v]);
    }
  }
}

template <typename L>
[[gnu::noinline]] void score_panel(const WideBlock& block, std::int64_t panel, std::int64_t count) {
  const float* q = block.q + panel * block.dimension * kPanel;
  float* scores = block.scores + panel * kBlock * kPanel;
  for (std::int64_t p = 0; p < count; p += kRowsAtOnce) {
    const float* rows = block.rows + p * block.row_stride;
    float* some = scores + p * kPanel;
    const auto steps = [&](std::int64_t d) { return block.dimension - d < kSumStep ? block.dimension - d : kSumStep; };
    product<L, false, true>(rows, block.row_stride, q, steps(0), some);
    for (std::int64_t d = kSumStep; d < block.dimension; d += kSumStep) {
      product<L, true, true>(rows + d, block.row_stride, q + d * kPanel, steps(d), some);
    }
  }
}

template <typename L>
[[gnu::noinline]] void sum_panel(const WideBlock& block, std::int64_t panel, std::int64_t count) {
  const float* weights = block.scores + panel * kBlock * kPanel;
  float* out = block.out + panel * block.dimension * kPanel;
  for (std::int64_t d = 0; d < block.dimension; d += kRowsAtOnce) {
    product<L, true, false>(block.rows + d, block.row_stride, weights, count, out + d * kPanel);
  }
}

// Scores of `count` positions become weights; what was summed before is scaled to the new largest scores.
template <typename L>
[[gnu::noinline]] void weigh_panel(const WideBlock& block, std::int64_t panel, std::int64_t count, bool masked) {
  using Vector = typename L::Vector;
  bool rescale = false;
  float factors[kPanel];
  for (std::int64_t lane = 0; lane < kPanel; lane += L::kLanes) {
    float* scores = block.scores + panel * kBlock * kPanel + lane;
    const float* masks = block.masks + panel * kBlock * kPanel + lane;
    float* largest = block.largest + panel * kPanel + lane;
    float* sums = block.sums + panel * kPanel + lane;
    const Vector before = L::load(largest);
    Vector top = before;
    for (std::int64_t p = 0; p < count; ++p) {
      Vector score = L::load(scores + p * kPanel);
      if (masked) {
        score = L::add(score, L::load(masks + p * kPanel));
        L::store(scores + p * kPanel, score);
      }
      top = L::max(score, top);
    }
    const Vector minus_top = L::multiply(top, L::broadcast(-1));
    const Vector factor = exponential<L>(L::add(before, minus_top));
    Vector total = L::broadcast(0);
    for (std::int64_t p = 0; p < count; ++p) {
      const Vector weight = exponential<L>(L::add(L::load(scores + p * kPanel), minus_top));
      L::store(scores + p * kPanel, weight);
      total = L::add(total, weight);
    }
    L::store(sums, L::fma(L::load(sums), factor, total));
    L::store(largest, top);
    L::store(factors + lane, factor);
    for (int i = 0; i < L::kLanes; ++i) rescale = rescale || factors[lane + i] != 1;
  }
  if (!rescale) return;
  float* out = block.out + panel * block.dimension * kPanel;
  for (std::int64_t lane = 0; lane < kPanel; lane += L::kLanes) {
    const Vector factor = L::load(factors + lane);
    for (std::int64_t d = 0; d < block.dimension; ++d) {
      float* one = out + d * kPanel + lane;
      L::store(one, L::multiply(L::load(one), factor));
    }
  }
}

// Which of `count` positions some token of the block sees; fills `seen` with them, and tells whether the mask is
// anything but 0 for one of the `count`.
template <typename L>
std::int64_t find_seen(const Task& task, const WideBlock& block, std::int64_t first, std::int64_t count,
                       std::int32_t* seen, bool& masked) {
  masked = false;
  std::int64_t found = 0;
  if (task.mask == nullptr) {
    for (; found < count; ++found) seen[found] = static_cast<std::int32_t>(found);
    return found;
  }
  std::uint16_t visible[kBlock] = {}, set = 0;
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const auto* mask = reinterpret_cast<const std::uint16_t*>(
                           task.mask + static_cast<std::size_t>(block.first_token + t) * task.mask_row_stride) +
                       first;
    for (std::int64_t p = 0; p < count; ++p) {
      visible[p] = static_cast<std::uint16_t>(visible[p] | (mask[p] ^ kHiddenPosition));
      set = static_cast<std::uint16_t>(set | mask[p]);
    }
  }
  masked = set != 0;
  for (std::int64_t p = 0; p < count; ++p) {
    if (visible[p] != 0) seen[found++] = static_cast<std::int32_t>(p);
  }
  return found;
}

// masks[panel][position][query]; of queries that are none, 0.
template <typename L>
void spread_masks(const Task& task, const WideBlock& block, std::int64_t first, const std::int32_t* seen,
                  std::int64_t count) {
  for (std::int64_t query = block.queries; query < block.panels * kPanel; ++query) {
    float* one = block.masks + query / kPanel * kBlock * kPanel + query % kPanel;
    for (std::int64_t p = 0; p < count; ++p) one[p * kPanel] = 0;
  }
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    float wide[kBlock + L::kLanes];
    std::uint16_t halves[kBlock + L::kLanes] = {};
    const auto* mask = reinterpret_cast<const std::uint16_t*>(
                           task.mask + static_cast<std::size_t>(block.first_token + t) * task.mask_row_stride) +
                       first;
    for (std::int64_t p = 0; p < count; ++p) halves[p] = mask[seen[p]];
    for (std::int64_t p = 0; p < count; p += L::kLanes) L::store(wide + p, L::load_half(halves + p));
    for (std::int64_t query = t * block.group; query < (t + 1) * block.group; ++query) {
      float* one = block.masks + query / kPanel * kBlock * kPanel + query % kPanel;
      for (std::int64_t p = 0; p < count; ++p) one[p * kPanel] = wide[p];
    }
  }
}

// The rows of these positions as f32, and zeros up to a multiple of kRowsAtOnce.
template <typename L>
void widen_rows(const WideBlock& block, const std::byte* base, std::size_t position_stride, const std::int32_t* seen,
                std::int64_t count) {
  std::int64_t p = 0;
  for (; p < count; ++p) {
    const auto* row =
        reinterpret_cast<const std::uint16_t*>(base + static_cast<std::size_t>(seen[p]) * position_stride);
    float* wide = block.rows + p * block.row_stride;
    for (std::int64_t d = 0; d < block.dimension; d += L::kLanes) L::store(wide + d, L::load_half(row + d));
  }
  for (; p % kRowsAtOnce != 0; ++p) {
    for (std::int64_t d = 0; d < block.dimension; ++d) block.rows[p * block.row_stride + d] = 0;
  }
}

template <typename L>
WideBlock wide_block(const Task& task, std::int64_t item, float* scratch) {
  WideBlock block;
  const std::int64_t blocks = task.blocks();
  block.dimension = task.dimension;
  block.row_stride = task.wide_row_floats();
  block.group = task.heads / task.kv_heads;
  block.kv_head = item / blocks;
  // The last tokens, which see most, first: threads end together.
  block.first_token = (blocks - 1 - item % blocks) * task.block_rows();
  block.tokens = task.rows - block.first_token < task.block_rows() ? task.rows - block.first_token : task.block_rows();
  block.queries = block.tokens * block.group;
  block.panels = (block.queries + kPanel - 1) / kPanel;
  const auto take = [&scratch](std::int64_t floats) {
    float* taken = scratch;
    scratch += floats;
    return taken;
  };
  block.q = take(kMostPanels * kPanel * block.dimension);
  block.out = take(kMostPanels * kPanel * block.dimension);
  block.scores = take(kMostPanels * kPanel * kBlock);
  block.masks = take(kMostPanels * kPanel * kBlock);
  block.largest = take(kMostPanels * kPanel);
  block.sums = take(kMostPanels * kPanel);
  block.rows = take(kBlock * block.row_stride);
  return block;
}

template <typename L, typename Element>
Element* row_of_query(Element* base, const WideBlock& block, std::int64_t query, std::size_t row_stride,
                      std::size_t head_stride) {
  return base + static_cast<std::size_t>(block.first_token + query / block.group) * row_stride +
         static_cast<std::size_t>(block.kv_head * block.group + query % block.group) * head_stride;
}

template <typename L>
void load_queries(const Task& task, const WideBlock& block) {
  for (std::int64_t query = 0; query < block.panels * kPanel; ++query) {
    float* q = block.q + query / kPanel * block.dimension * kPanel + query % kPanel;
    float* out = block.out + (q - block.q);
    block.largest[query] = kLowestScore;
    block.sums[query] = 0;
    const bool real = query < block.queries;
    const auto* from = reinterpret_cast<const float*>(
        row_of_query<L>(task.q, block, real ? query : 0, task.q_row_stride, task.q_head_stride));
    for (std::int64_t d = 0; d < block.dimension; ++d) {
      q[d * kPanel] = real ? from[d] * task.scale : 0;
      out[d * kPanel] = 0;
    }
  }
}

template <typename L>
void store_results(const Task& task, const WideBlock& block) {
  for (std::int64_t query = 0; query < block.queries; ++query) {
    const float* from = block.out + query / kPanel * block.dimension * kPanel + query % kPanel;
    const float inverse = block.sums[query] == 0 ? 0 : 1 / block.sums[query];
    auto* to =
        reinterpret_cast<float*>(row_of_query<L>(task.out, block, query, task.out_row_stride, task.out_head_stride));
    for (std::int64_t d = 0; d < block.dimension; ++d) to[d] = from[d * kPanel] * inverse;
  }
}

template <typename L>
void attend_wide(const Task& task, std::int64_t item, float* scratch) {
  const WideBlock block = wide_block<L>(task, item, scratch);
  load_queries<L>(task, block);
  const std::byte* k = task.k + static_cast<std::size_t>(block.kv_head) * task.k_head_stride;
  const std::byte* v = task.v + static_cast<std::size_t>(block.kv_head) * task.v_head_stride;
  for (std::int64_t first = 0; first < task.positions; first += kBlock) {
    std::int32_t seen[kBlock];
    bool masked = false;
    const std::int64_t left = task.positions - first < kBlock ? task.positions - first : kBlock;
    const std::int64_t count = find_seen<L>(task, block, first, left, seen, masked);
    if (count == 0) continue;
    const auto from = static_cast<std::size_t>(first);
    widen_rows<L>(block, k + from * task.k_position_stride, task.k_position_stride, seen, count);
    if (masked) spread_masks<L>(task, block, first, seen, count);
    for (std::int64_t panel = 0; panel < block.panels; ++panel) {
      score_panel<L>(block, panel, count);
      weigh_panel<L>(block, panel, count, masked);
    }
    widen_rows<L>(block, v + from * task.v_position_stride, task.v_position_stride, seen, count);
    for (std::int64_t panel = 0; panel < block.panels; ++panel) sum_panel<L>(block, panel, count);
  }
  store_results<L>(task, block);
}

}  // namespace kazeia::attention
