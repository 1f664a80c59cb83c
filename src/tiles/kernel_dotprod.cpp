// NEON with SDOT (ARMv8.2 dotprod): 16 products an instruction, four columns of four rows against four activations
// that sit in one lane of a register.

#include <algorithm>
#include <cmath>

#include "tiles/kernels.h"
#include "tiles/neon.h"
#include "tiles/neon_scales.h"

namespace kazeia::tiles {
namespace {

using neon::Traits;
using neon::unroll;

// docs/decisions/0007: how these were chosen.
constexpr int kPrefetchTiles = 8;    // ahead of the tile in work
constexpr int kTokenBlock = 4;       // tokens of one gemm block: 8 rows x 4 tokens fill 16 accumulators
constexpr std::int64_t kChunk = 32;  // tiles; a chunk of the panel (36 KB) stays in the L1 cache for every token

void quantise(const float* x, std::int64_t columns, ColumnOrder order, const Activations& out, std::int64_t token) {
  static constexpr std::uint8_t kEvenOdd[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  const uint8x16_t even_odd = vld1q_u8(kEvenOdd);
  std::int8_t* quants = out.quants + token * out.quant_stride;
  float* scales = out.scales + token * out.blocks;
  std::int32_t* sums = out.sums + token * out.blocks * 2;
  for (std::int64_t block = 0; block < out.blocks; ++block, quants += 32) {
    float tail[32];
    const float* from = x + block * 32;
    const std::int64_t left = columns - block * 32;
    if (left < 32) {
      for (std::int64_t k = 0; k < 32; ++k) tail[k] = k < left ? from[k] : 0.0f;
      from = tail;
    }
    float32x4_t values[8];
    float32x4_t largest_of = vdupq_n_f32(0);
    unroll<8>([&](auto i) KAZEIA_INLINE {
      values[i] = vld1q_f32(from + 4 * i);
      largest_of = vmaxnmq_f32(largest_of, vabsq_f32(values[i]));
    });
    const float largest = vmaxnmvq_f32(largest_of);
    const float16x4_t half_scale = vcvt_f16_f32(vdupq_n_f32(largest / 127.0f));
    const float scale = vgetq_lane_f32(vcvt_f32_f16(half_scale), 0);
    scales[block] = scale;
    const float inverse = scale != 0 ? 127.0f / largest : 0.0f;
    unroll<2>([&](auto half) KAZEIA_INLINE {
      int16x4_t part[4];
      unroll<4>([&](auto i)
                    KAZEIA_INLINE { part[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(values[4 * half + i], inverse))); });
      const int8x16_t natural =
          vcombine_s8(vmovn_s16(vcombine_s16(part[0], part[1])), vmovn_s16(vcombine_s16(part[2], part[3])));
      sums[2 * block + half] = vaddlvq_s8(natural);
      vst1q_s8(quants + 16 * half, order == ColumnOrder::kEvenOdd ? vqtbl1q_s8(natural, even_odd) : natural);
    });
  }
}

// dot += columns [16 * kHalf, +16) of 32 rows times their activations.
template <WeightType T, int kHalf>
[[gnu::always_inline]] inline void accumulate(const std::uint8_t*& tile, int8x16_t a, int32x4_t (&dot)[8]) {
  unroll<2>([&](auto group) KAZEIA_INLINE {
    if constexpr (group != 0) neon::load_after(dot, tile);
    neon::read_quants<T, 2 * kHalf + group>(tile, [&](auto quad, int8x16_t first, int8x16_t second) KAZEIA_INLINE {
      constexpr int kLane = 2 * group;  // a named constant: without optimisation GCC takes nothing else
      dot[quad] = vdotq_laneq_s32(dot[quad], first, a, kLane);
      dot[quad] = vdotq_laneq_s32(dot[quad], second, a, kLane + 1);
      if constexpr (T == WeightType::kQ6_K && quad == 3) neon::load_after(dot, tile);
    });
  });
}

template <WeightType T>
[[gnu::noinline]] void gemv_of(const std::uint8_t* tile, const Activations& a, std::int64_t token, float* out) {
  constexpr int kPhases = Traits<T>::kPhases;
  const std::int8_t* quants = a.quants_of(token);
  const float* scales = a.scales_of(token);
  const std::int32_t* sums = a.sums_of(token);
  float32x4_t total[8];
  unroll<8>([&](auto i) KAZEIA_INLINE { total[i] = vdupq_n_f32(0); });
  for (const std::int8_t* end = quants + 32 * a.blocks; quants != end; quants += 32) {
    unroll<(Traits<T>::kTileBytes + 63) / 64>([&](auto line) KAZEIA_INLINE {
      __builtin_prefetch(tile + kPrefetchTiles * Traits<T>::kTileBytes + 64 * line);
    });
    const float scale = *scales;
    unroll<kPhases>([&](auto phase) KAZEIA_INLINE {
      // The offset of the quants enters as the start value: sum((q - 8) * a) = sum(q * a) - 8 * sum(a).
      const std::int32_t sum = kPhases == 2 ? sums[phase] : sums[0] + sums[1];
      int32x4_t dot[8];
      unroll<8>([&](auto i) KAZEIA_INLINE { dot[i] = vdupq_n_s32(-Traits<T>::kOffset * sum); });
      unroll<2 / kPhases>([&](auto half) KAZEIA_INLINE {
        if constexpr (phase + half != 0) neon::load_after(dot, tile);
        accumulate<T, phase + half>(tile, vld1q_s8(quants + 16 * (phase + half)), dot);
      });
      neon::load_after(dot, tile);
      unroll<4>([&](auto octet) KAZEIA_INLINE {
        const neon::RowScales w = neon::read_scales<T, octet, phase>(tile);
        unroll<2>([&](auto i) KAZEIA_INLINE {
          float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(dot[2 * octet + i]), w.scale[i]);
          if constexpr (Traits<T>::kMinimum) scaled = vfmaq_n_f32(scaled, w.minimum[i], static_cast<float>(sum));
          total[2 * octet + i] = vfmaq_n_f32(total[2 * octet + i], scaled, scale);
        });
      });
    });
    tile += Traits<T>::kTileBytes;
    scales += 1;
    sums += 2;
  }
  unroll<8>([&](auto i) KAZEIA_INLINE { vst1q_f32(out + 4 * i, total[i]); });
}

// The panel: for each octet of rows, for each tile, [8 column quads][2 row quads] vectors of 4 rows x 4 columns,
// signed, then [phase][2] vectors of f32 scales, then [2] of minimums.
template <WeightType T>
constexpr int kRecordBytes = 256 + 32 * Traits<T>::kPhases + (Traits<T>::kMinimum ? 32 : 0);

template <WeightType T>
void expand_of(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* panel) {
  const std::int64_t octet_stride = blocks * kRecordBytes<T>;
  const int8x16_t offset = vdupq_n_s8(Traits<T>::kOffset);
  for (std::int64_t block = 0; block < blocks; ++block, tile += Traits<T>::kTileBytes, panel += kRecordBytes<T>) {
    unroll<4>([&](auto group) KAZEIA_INLINE {
      neon::read_quants<T, group>(tile, [&](auto quad, int8x16_t first, int8x16_t second) KAZEIA_INLINE {
        std::uint8_t* to = panel + quad / 2 * octet_stride + group * 64 + quad % 2 * 16;
        vst1q_s8(reinterpret_cast<std::int8_t*>(to), vsubq_s8(first, offset));
        vst1q_s8(reinterpret_cast<std::int8_t*>(to + 32), vsubq_s8(second, offset));
      });
    });
    unroll<4>([&](auto octet) KAZEIA_INLINE {
      auto* to = reinterpret_cast<float*>(panel + octet * octet_stride + 256);
      unroll<Traits<T>::kPhases>([&](auto phase) KAZEIA_INLINE {
        const neon::RowScales w = neon::read_scales<T, octet, phase>(tile);
        unroll<2>([&](auto i) KAZEIA_INLINE {
          vst1q_f32(to + 8 * phase + 4 * i, w.scale[i]);
          if constexpr (Traits<T>::kMinimum) vst1q_f32(to + 8 + 4 * i, w.minimum[i]);
        });
      });
    });
  }
}

// What a block of tokens needs besides its quants, one vector per tile with a token in each lane.
struct TokenScales {
  float scale[kChunk][kTokenBlock];
  float weighted_sum[kChunk][kTokenBlock];  // scale * sum of the quants; for types with a minimum
};

// Eight rows x kTokens tokens x `count` tiles; adds to `out` unless `fresh`.
template <WeightType T, int kTokens>
[[gnu::noinline]] void multiply(const std::uint8_t* record, const std::int8_t* const (&quants)[kTokenBlock],
                                const TokenScales& tokens, std::int64_t count, float* out, std::int64_t out_stride,
                                bool fresh) {
  float32x4_t total[2][kTokens];
  unroll<kTokens>([&](auto t) KAZEIA_INLINE {
    unroll<2>([&](auto i)
                  KAZEIA_INLINE { total[i][t] = fresh ? vdupq_n_f32(0) : vld1q_f32(out + t * out_stride + 4 * i); });
  });
  for (std::int64_t block = 0; block < count; ++block, record += kRecordBytes<T>) {
    const auto* weights = reinterpret_cast<const std::int8_t*>(record);
    const auto* scales = reinterpret_cast<const float*>(record + 256);
    const float32x4_t token_scale = vld1q_f32(tokens.scale[block]);
    unroll<Traits<T>::kPhases>([&](auto phase) KAZEIA_INLINE {
      int32x4_t dot[2][kTokens];
      unroll<kTokens>([&](auto t)
                          KAZEIA_INLINE { unroll<2>([&](auto i) KAZEIA_INLINE { dot[i][t] = vdupq_n_s32(0); }); });
      constexpr int kHalves = 2 / Traits<T>::kPhases;  // of 16 columns
      unroll<kHalves>([&](auto half) KAZEIA_INLINE {
        constexpr int kHalf = phase + half;
        int8x16_t a[kTokens];
        unroll<kTokens>([&](auto t) KAZEIA_INLINE { a[t] = vld1q_s8(quants[t] + block * 32 + kHalf * 16); });
        unroll<4>([&](auto lane) KAZEIA_INLINE {
          constexpr int kLane = lane;
          unroll<2>([&](auto i) KAZEIA_INLINE {
            const int8x16_t w = vld1q_s8(weights + kHalf * 128 + lane * 32 + i * 16);
            unroll<kTokens>([&](auto t) KAZEIA_INLINE { dot[i][t] = vdotq_laneq_s32(dot[i][t], w, a[t], kLane); });
          });
        });
      });
      unroll<2>([&](auto i) KAZEIA_INLINE {
        const float32x4_t scale = vld1q_f32(scales + 8 * phase + 4 * i);
        unroll<kTokens>([&](auto t) KAZEIA_INLINE {
          constexpr int kLane = t;
          total[i][t] = vfmaq_f32(total[i][t], vcvtq_f32_s32(dot[i][t]), vmulq_laneq_f32(scale, token_scale, kLane));
        });
      });
    });
    if constexpr (Traits<T>::kMinimum) {
      const float32x4_t weighted_sum = vld1q_f32(tokens.weighted_sum[block]);
      unroll<2>([&](auto i) KAZEIA_INLINE {
        const float32x4_t minimum = vld1q_f32(scales + 8 + 4 * i);
        unroll<kTokens>([&](auto t) KAZEIA_INLINE {
          constexpr int kLane = t;
          total[i][t] = vfmaq_laneq_f32(total[i][t], minimum, weighted_sum, kLane);
        });
      });
    }
  }
  unroll<kTokens>([&](auto t) KAZEIA_INLINE {
    unroll<2>([&](auto i) KAZEIA_INLINE { vst1q_f32(out + t * out_stride + 4 * i, total[i][t]); });
  });
}

template <WeightType T>
void gemm_of(const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count, float* out,
             std::int64_t out_stride) {
  for (std::int64_t chunk = 0; chunk < a.blocks; chunk += kChunk) {
    const std::int64_t tiles = std::min(kChunk, a.blocks - chunk);
    for (std::int64_t t = 0; t < count;) {
      const std::int64_t left = count - t;
      const int width = left >= 4 ? 4 : left >= 2 ? 2 : 1;
      TokenScales tokens;
      const std::int8_t* quants[kTokenBlock];
      for (int i = 0; i < kTokenBlock; ++i) {
        const std::int64_t token = first + t + std::min(i, width - 1);
        quants[i] = a.quants_of(token) + chunk * 32;
        const float* scales = a.scales_of(token) + chunk;
        const std::int32_t* sums = a.sums_of(token) + 2 * chunk;
        for (std::int64_t block = 0; block < tiles; ++block) {
          tokens.scale[block][i] = scales[block];
          if constexpr (Traits<T>::kMinimum) {
            tokens.weighted_sum[block][i] = scales[block] * static_cast<float>(sums[2 * block] + sums[2 * block + 1]);
          }
        }
      }
      const auto kernel = width == 4 ? multiply<T, 4> : width == 2 ? multiply<T, 2> : multiply<T, 1>;
      for (int octet = 0; octet < 4; ++octet) {
        kernel(panel + (octet * a.blocks + chunk) * kRecordBytes<T>, quants, tokens, tiles,
               out + t * out_stride + 8 * octet, out_stride, chunk == 0);
      }
      t += width;
    }
  }
}

void gemv(WeightType type, const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  neon::with_type(type, [&](auto t) { gemv_of<t>(tiles, a, token, out); });
}

std::size_t panel_bytes(WeightType type, std::int64_t blocks) {
  return neon::with_type(type, [&](auto t) { return static_cast<std::size_t>(blocks) * 4 * kRecordBytes<t>; });
}

void expand(WeightType type, const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel) {
  neon::with_type(type, [&](auto t) { expand_of<t>(tiles, blocks, panel); });
}

void gemm(WeightType type, const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count,
          float* out, std::int64_t out_stride) {
  neon::with_type(type, [&](auto t) { gemm_of<t>(panel, a, first, count, out, out_stride); });
}

}  // namespace

const KernelSet& dotprod_kernels() {
  static constexpr KernelSet set{"neon-dotprod", quantise, gemv, panel_bytes, expand, gemm};
  return set;
}

}  // namespace kazeia::tiles
