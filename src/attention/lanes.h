// The kernels, written once over the vectors of an instruction set. A kernel file defines `Lanes`:
//
//   Vector                          kLanes floats
//   kLanes, kAccumulators           a multiple of 4; vectors that stay in registers beside the operands
//   load, store, load_half          any alignment; load_half widens kLanes f16
//   broadcast, add, multiply, max   max(a, b) is b if either is not a number
//   fma(a, b, c)                    a * b + c
//   sums(a, out)                    out[i] = sum of a[i], for 4 vectors
//   nearest(x), power_of_two(n)     whole numbers; 2^n for n in [-126, 0], anything for others
//   zero_below(x, limit, value)     0 where x < limit, else value
//
// A `Lanes` lives in its file's anonymous namespace, and everything here is a template of it: no code for an
// instruction set is left for the linker to hand to a machine without it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"

namespace kazeia::attention {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr std::int64_t kScoreBlock = 8;        // positions that all heads look at before the next ones
constexpr std::int64_t kSumBytes = 8192;       // of V rows that stay in the L1 cache for all parts of a head
constexpr std::int64_t kPrefetchBytes = 8192;  // how far ahead rows are asked for
constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kScoreStride = kMostChunk + 16;  // a cache line more: rows of scores in different sets

// e^x for x <= 0 (or not a number): 2^n * e^r with |r| <= ln(2) / 2, e^r by its Taylor series, whose rest r^8 / 8! is
// below 6e-9. ln(2) is split so that n times its first part is exact. What would not be a normal number is 0.
template <typename L>
[[gnu::always_inline]] inline typename L::Vector exponential(typename L::Vector x) {
  using Vector = typename L::Vector;
  const Vector n = L::nearest(L::multiply(x, L::broadcast(1.44269504f)));
  const Vector r = L::fma(n, L::broadcast(-1.42860677e-6f), L::fma(n, L::broadcast(-0.693145752f), x));
  Vector sum = L::broadcast(1.0f / 5040);
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    sum = L::fma(sum, r, L::broadcast(factor));
  }
  return L::zero_below(x, -87.0f, L::multiply(sum, L::power_of_two(n)));
}

// What one walk over a chunk works on: queries of some KV heads, equally many of each.
struct Walk {
  std::int64_t dimension;
  std::int64_t heads;            // KV heads
  std::int64_t queries_of_head;  // query i belongs to KV head i / queries_of_head
  std::int64_t k_head_stride;    // bytes
  std::int64_t v_head_stride;
  std::int64_t positions;          // that some query sees
  std::int64_t ahead;              // positions
  const std::byte* k[kMostChunk];  // rows of the first KV head, in the order in which they are read
  const std::byte* v[kMostChunk];
  const float* queries[kQueriesAtOnce];        // [dimension] each
  float scores[kQueriesAtOnce][kScoreStride];  // then weights
  float masks[kFewRows][kMostChunk];           // [query token][position]
};

// scores[query][position] of kRows queries of a KV head and kPositions positions.
template <typename L, int kRows, int kPositions>
[[gnu::always_inline]] inline void dots(Walk& walk, std::int64_t head, std::int64_t query, std::int64_t position,
                                        bool prefetch) {
  using Vector = typename L::Vector;
  constexpr int kCount = kRows * kPositions;
  Vector total[(kCount + 3) / 4 * 4];
  for (Vector& one : total) one = L::broadcast(0);
  const std::uint16_t* k[kPositions];
  const std::byte* ahead[kPositions];
  const std::int64_t k_offset = head * walk.k_head_stride, v_offset = head * walk.v_head_stride;
  for (int p = 0; p < kPositions; ++p) {
    k[p] = reinterpret_cast<const std::uint16_t*>(walk.k[position + p] + k_offset);
    const std::int64_t next = position + p + walk.ahead;  // behind the last row of K come those of V
    ahead[p] = next < walk.positions ? walk.k[next] + k_offset
                                     : walk.v[next < 2 * walk.positions ? next - walk.positions : 0] + v_offset;
  }
  for (std::int64_t d = 0; d < walk.dimension; d += kDimensionStep) {
    if (prefetch) {
      for (int p = 0; p < kPositions; ++p) __builtin_prefetch(ahead[p] + 2 * d);
    }
    for (int part = 0; part < kDimensionStep; part += L::kLanes) {
      Vector wide[kPositions];
      for (int p = 0; p < kPositions; ++p) wide[p] = L::load_half(k[p] + d + part);
      for (int r = 0; r < kRows; ++r) {
        const Vector q = L::load(walk.queries[query + r] + d + part);
        for (int p = 0; p < kPositions; ++p) total[r * kPositions + p] = L::fma(q, wide[p], total[r * kPositions + p]);
      }
    }
  }
  float sums[(kCount + 3) / 4 * 4];
  for (int i = 0; i < kCount; i += 4) L::sums(total + i, sums + i);
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPositions; ++p) walk.scores[query + r][position + p] = sums[r * kPositions + p];
  }
}

template <typename L, int kRows>
[[gnu::noinline]] void score_block(Walk& walk, std::int64_t head, std::int64_t query, std::int64_t first,
                                   std::int64_t last) {
  constexpr int kPositions = L::kAccumulators / kRows < kScoreBlock ? L::kAccumulators / kRows : kScoreBlock;
  const bool prefetch = query == head * walk.queries_of_head;
  for (; first + kPositions <= last; first += kPositions)
    dots<L, kRows, kPositions>(walk, head, query, first, prefetch);
  for (; first < last; ++first) dots<L, kRows, 1>(walk, head, query, first, prefetch);
}

// values[kRows][dimension] += the V rows [first, last) times their weights.
template <typename L, int kRows>
[[gnu::noinline]] void sum_block(const Walk& walk, std::int64_t head, std::int64_t query, std::int64_t first,
                                 std::int64_t last, float* values) {
  using Vector = typename L::Vector;
  constexpr int kMost = kDimensionStep / L::kLanes;
  constexpr int kVectors = L::kAccumulators / kRows < kMost ? L::kAccumulators / kRows : kMost;
  const std::int64_t offset = head * walk.v_head_stride;
  const bool prefetch = query == head * walk.queries_of_head;
  for (std::int64_t d = 0; d < walk.dimension; d += kVectors * L::kLanes) {
    if (prefetch && 2 * d % kCacheLine == 0) {
      for (std::int64_t p = first + walk.ahead; p < last + walk.ahead && p < walk.positions; ++p) {
        __builtin_prefetch(walk.v[p] + offset + 2 * d);
      }
    }
    Vector total[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVectors; ++i) total[r][i] = L::load(values + r * walk.dimension + d + i * L::kLanes);
    }
    for (std::int64_t p = first; p < last; ++p) {
      const auto* v = reinterpret_cast<const std::uint16_t*>(walk.v[p] + offset) + d;
      Vector wide[kVectors];
      for (int i = 0; i < kVectors; ++i) wide[i] = L::load_half(v + i * L::kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vector weight = L::broadcast(walk.scores[query + r][p]);
        for (int i = 0; i < kVectors; ++i) total[r][i] = L::fma(weight, wide[i], total[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVectors; ++i) L::store(values + r * walk.dimension + d + i * L::kLanes, total[r][i]);
    }
  }
}

// The queries of every KV head of the walk in groups of 4, 2 and 1: each f(head, first query).
template <typename F4, typename F2, typename F1>
[[gnu::always_inline]] inline void in_groups(const Walk& walk, F4&& four, F2&& two, F1&& one) {
  for (std::int64_t head = 0; head < walk.heads; ++head) {
    std::int64_t query = head * walk.queries_of_head;
    const std::int64_t end = query + walk.queries_of_head;
    for (; query + 4 <= end; query += 4) four(head, query);
    if (query + 2 <= end) {
      two(head, query);
      query += 2;
    }
    if (query < end) one(head, query);
  }
}

// Scores become weights; returns the largest score and, in `sum`, the sum of the weights. The lanes behind the last
// position are filled for it.
template <typename L>
[[gnu::noinline]] float to_weights(float* scores, const float* mask, std::int64_t positions, float scale, float* sum) {
  using Vector = typename L::Vector;
  Vector top = L::broadcast(kMinusInfinity);
  const std::int64_t whole = (positions + L::kLanes - 1) / L::kLanes * L::kLanes;
  for (std::int64_t p = positions; p < whole; ++p) scores[p] = kMinusInfinity;
  for (std::int64_t p = 0; p < whole; p += L::kLanes) {
    Vector score = L::multiply(L::load(scores + p), L::broadcast(scale));
    if (mask != nullptr) score = L::add(score, L::load(mask + p));
    L::store(scores + p, score);
    top = L::max(score, top);
  }
  float lanes[L::kLanes];
  L::store(lanes, top);
  float largest = kMinusInfinity;
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  // Nothing is larger where this query sees none of the positions, or where no score is a number; the former become
  // weights of 0, the latter stay.
  const Vector offset = L::broadcast(largest == kMinusInfinity ? 0 : -largest);
  Vector total = L::broadcast(0);
  for (std::int64_t p = 0; p < whole; p += L::kLanes) {
    const Vector weight = exponential<L>(L::add(L::load(scores + p), offset));
    L::store(scores + p, weight);
    total = L::add(total, weight);
  }
  L::store(lanes, total);
  *sum = 0;
  for (const float lane : lanes) *sum += lane;
  return largest;
}

template <typename L>
void widen_mask(const Task& task, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const auto* halves =
      reinterpret_cast<const std::uint16_t*>(task.mask + static_cast<std::size_t>(row) * task.mask_row_stride) + first;
  std::int64_t p = 0;
  for (; p + L::kLanes <= count; p += L::kLanes) L::store(out + p, L::load_half(halves + p));
  if (p == count) return;
  std::uint16_t last[L::kLanes] = {};
  for (std::int64_t i = p; i < count; ++i) last[i - p] = halves[i];
  L::store(out + p, L::load_half(last));
}

// Finds the positions of the chunk that some query sees and closes the masks up to them.
template <typename L>
[[gnu::noinline]] void find_rows(const Task& task, std::int64_t kv_head, std::int64_t first, std::int64_t count,
                                 std::int64_t first_row, std::int64_t last_row, Walk& walk) {
  std::int32_t seen[kMostChunk];
  std::int64_t positions = 0;
  if (task.mask == nullptr) {
    for (; positions < count; ++positions) seen[positions] = static_cast<std::int32_t>(positions);
  } else {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      widen_mask<L>(task, row, first, count, walk.masks[row]);
    }
    for (std::int64_t p = 0; p < count; ++p) {
      bool sees = false;
      for (std::int64_t row = first_row; row < last_row; ++row) sees = sees || walk.masks[row][p] != kMinusInfinity;
      if (!sees) continue;
      for (std::int64_t row = first_row; row < last_row; ++row) walk.masks[row][positions] = walk.masks[row][p];
      seen[positions++] = static_cast<std::int32_t>(p);
    }
    for (std::int64_t row = first_row; row < last_row; ++row) {
      for (std::int64_t p = positions; p < kMostChunk && p < positions + L::kLanes; ++p) walk.masks[row][p] = 0;
    }
  }
  const std::byte* k = task.k + static_cast<std::size_t>(kv_head) * task.k_head_stride +
                       static_cast<std::size_t>(first) * task.k_position_stride;
  const std::byte* v = task.v + static_cast<std::size_t>(kv_head) * task.v_head_stride +
                       static_cast<std::size_t>(first) * task.v_position_stride;
  for (std::int64_t p = 0; p < positions; ++p) {
    walk.k[p] = k + static_cast<std::size_t>(seen[p]) * task.k_position_stride;
    walk.v[p] = v + static_cast<std::size_t>(seen[p]) * task.v_position_stride;
  }
  walk.positions = positions;
}

// Scores, weights and sums of a walk whose queries are set. Query i of a head leaves its sums in values[i] and its pair
// in pairs[i] of that head's partial results, which are `floats` apart; `tokens[i]` is the row of its mask.
template <typename L>
[[gnu::noinline]] void attend_walk(const Task& task, Walk& walk, const std::int64_t* tokens, float* values,
                                   float* pairs, std::int64_t floats) {
  const std::int64_t queries = walk.heads * walk.queries_of_head;
  const auto of_query = [&](float* base, std::int64_t query, std::int64_t size) {
    return base + query / walk.queries_of_head * floats + query % walk.queries_of_head * size;
  };
  for (std::int64_t p = 0; p < walk.positions; p += kScoreBlock) {
    const std::int64_t end = walk.positions - p < kScoreBlock ? walk.positions : p + kScoreBlock;
    in_groups(
        walk, [&](std::int64_t head, std::int64_t query) { score_block<L, 4>(walk, head, query, p, end); },
        [&](std::int64_t head, std::int64_t query) { score_block<L, 2>(walk, head, query, p, end); },
        [&](std::int64_t head, std::int64_t query) { score_block<L, 1>(walk, head, query, p, end); });
  }
  for (std::int64_t query = 0; query < queries; ++query) {
    float* pair = of_query(pairs, query, 2);
    float* sums = of_query(values, query, walk.dimension);
    if (walk.positions == 0) {
      pair[0] = kMinusInfinity;
      pair[1] = 0;
      continue;
    }
    const float* mask = task.mask == nullptr ? nullptr : walk.masks[tokens[query]];
    pair[0] = to_weights<L>(walk.scores[query], mask, walk.positions, task.scale, pair + 1);
    for (std::int64_t d = 0; d < walk.dimension; ++d) sums[d] = 0;
  }
  const std::int64_t row_bytes = 2 * walk.dimension * walk.heads;
  const std::int64_t block = kSumBytes / row_bytes > kScoreBlock ? kSumBytes / row_bytes : kScoreBlock;
  for (std::int64_t p = 0; p < walk.positions; p += block) {
    const std::int64_t end = walk.positions - p < block ? walk.positions : p + block;
    const auto sums = [&](std::int64_t query) { return of_query(values, query, walk.dimension); };
    in_groups(
        walk, [&](std::int64_t head, std::int64_t query) { sum_block<L, 4>(walk, head, query, p, end, sums(query)); },
        [&](std::int64_t head, std::int64_t query) { sum_block<L, 2>(walk, head, query, p, end, sums(query)); },
        [&](std::int64_t head, std::int64_t query) { sum_block<L, 1>(walk, head, query, p, end, sums(query)); });
  }
}

template <typename L>
void attend(const Task& task, std::int64_t item, float* partials) {
  const std::int64_t group = task.heads / task.kv_heads, queries = task.rows * group;
  const std::int64_t chunk_positions = task.chunk_positions(), at_once = task.kv_heads_at_once();
  const std::int64_t spans = task.kv_heads / at_once;
  const std::int64_t kv_head = item % spans * at_once, chunk = item / spans, first = chunk * chunk_positions;
  const std::int64_t count = task.positions - first < chunk_positions ? task.positions - first : chunk_positions;
  const auto floats = static_cast<std::int64_t>(task.partial_floats());
  float* values = partials + (chunk * task.kv_heads + kv_head) * floats;
  float* pairs = values + queries * task.dimension;
  Walk walk;
  walk.dimension = task.dimension;
  walk.heads = at_once;
  walk.k_head_stride = static_cast<std::int64_t>(task.k_head_stride);
  walk.v_head_stride = static_cast<std::int64_t>(task.v_head_stride);
  walk.ahead = kPrefetchBytes / (2 * task.dimension * at_once);
  if (walk.ahead < 2) walk.ahead = 2;
  // Query i of a KV head is the head's query head i % group of token i / group. One head alone may have more than fit.
  for (std::int64_t begin = 0; begin < queries; begin += kQueriesAtOnce) {
    const std::int64_t many = queries - begin < kQueriesAtOnce ? queries - begin : kQueriesAtOnce;
    std::int64_t tokens[kQueriesAtOnce];
    walk.queries_of_head = many;
    for (std::int64_t i = 0; i < at_once * many; ++i) {
      const std::int64_t query = begin + i % many, head = (kv_head + i / many) * group + query % group;
      tokens[i] = query / group;
      walk.queries[i] =
          reinterpret_cast<const float*>(task.q + static_cast<std::size_t>(tokens[i]) * task.q_row_stride +
                                         static_cast<std::size_t>(head) * task.q_head_stride);
    }
    find_rows<L>(task, kv_head, first, count, begin / group, (begin + many - 1) / group + 1, walk);
    attend_walk<L>(task, walk, tokens, values + begin * task.dimension, pairs + 2 * begin, floats);
  }
}

template <typename L>
void reduce(const Task& task, std::int64_t result, const float* partials) {
  const std::int64_t group = task.heads / task.kv_heads, queries = task.rows * group;
  const std::int64_t row = result / task.heads, head = result % task.heads;
  const std::int64_t kv_head = head / group, query = row * group + head % group;
  const std::int64_t chunks = task.chunks();
  const std::size_t floats = task.partial_floats();
  const auto values_of = [&](std::int64_t chunk) {
    return partials + static_cast<std::size_t>(chunk * task.kv_heads + kv_head) * floats + query * task.dimension;
  };
  const auto pair_of = [&](std::int64_t chunk) {
    return values_of(chunk) + (queries - query) * task.dimension + 2 * query;
  };
  auto* out = reinterpret_cast<float*>(task.out + static_cast<std::size_t>(row) * task.out_row_stride +
                                       static_cast<std::size_t>(head) * task.out_head_stride);
  float largest = kMinusInfinity;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const float* pair = pair_of(chunk);
    if (pair[1] != 0 && pair[0] > largest) largest = pair[0];
  }
  for (std::int64_t d = 0; d < task.dimension; ++d) out[d] = 0;
  float sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const float* pair = pair_of(chunk);
    if (pair[1] == 0) continue;
    const float* values = values_of(chunk);
    const float factor = __builtin_expf(pair[0] - largest);
    sum += pair[1] * factor;
    const typename L::Vector factors = L::broadcast(factor);
    for (std::int64_t d = 0; d < task.dimension; d += L::kLanes) {
      L::store(out + d, L::fma(L::load(values + d), factors, L::load(out + d)));
    }
  }
  if (sum == 0) return;
  const typename L::Vector inverse = L::broadcast(1 / sum);
  for (std::int64_t d = 0; d < task.dimension; d += L::kLanes)
    L::store(out + d, L::multiply(L::load(out + d), inverse));
}

}  // namespace kazeia::attention
