// NEON with SMMLA (ARMv8.6 i8mm): 32 products an instruction, two rows x eight columns against two tokens. For one
// token half of every result would be thrown away, so gemv is the dotprod kernels' own.

#include <algorithm>

#include "tiles/kernels.h"
#include "tiles/neon.h"
#include "tiles/neon_scales.h"

namespace kazeia::tiles {
namespace {

using neon::Traits;
using neon::unroll;

// docs/decisions/0007: how these were chosen.
constexpr int kTokenBlock = 4;       // tokens of one gemm block: 8 rows x 4 tokens fill 16 accumulators
constexpr std::int64_t kChunk = 32;  // tiles; a chunk of the panel (40 KB) stays in the L1 cache for every token
constexpr int kPairs = kTokenBlock / 2;

// The panel: for each octet of rows, for each tile, [4 column groups][4 row pairs] vectors of 2 rows x 8 columns,
// signed, then [phase][4] vectors of f32 scales {s0, s1, s0, s1}, then [4] of minimums.
template <WeightType T>
constexpr int kRecordBytes = 256 + 64 * Traits<T>::kPhases + (Traits<T>::kMinimum ? 64 : 0);

template <WeightType T>
void expand_of(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* panel) {
  const std::int64_t octet_stride = blocks * kRecordBytes<T>;
  const int8x16_t offset = vdupq_n_s8(Traits<T>::kOffset);
  for (std::int64_t block = 0; block < blocks; ++block, tile += Traits<T>::kTileBytes, panel += kRecordBytes<T>) {
    unroll<4>([&](auto group) KAZEIA_INLINE {
      neon::read_quants<T, group>(tile, [&](auto quad, int8x16_t first, int8x16_t second) KAZEIA_INLINE {
        const int32x4_t x = vreinterpretq_s32_s8(vsubq_s8(first, offset));
        const int32x4_t y = vreinterpretq_s32_s8(vsubq_s8(second, offset));
        auto* to = reinterpret_cast<std::int8_t*>(panel + quad / 2 * octet_stride) + group * 64 + quad % 2 * 32;
        vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(x, y)));
        vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(x, y)));
      });
    });
    unroll<4>([&](auto octet) KAZEIA_INLINE {
      auto* to = reinterpret_cast<float*>(panel + octet * octet_stride + 256);
      const auto store = [](float* p, float32x4_t quad) {
        vst1q_f32(p, vcombine_f32(vget_low_f32(quad), vget_low_f32(quad)));
        vst1q_f32(p + 4, vcombine_f32(vget_high_f32(quad), vget_high_f32(quad)));
      };
      unroll<Traits<T>::kPhases>([&](auto phase) KAZEIA_INLINE {
        const neon::RowScales w = neon::read_scales<T, octet, phase>(tile);
        unroll<2>([&](auto i) KAZEIA_INLINE {
          store(to + 16 * phase + 8 * i, w.scale[i]);
          if constexpr (Traits<T>::kMinimum) store(to + 16 + 8 * i, w.minimum[i]);
        });
      });
    });
  }
}

// A chunk of kPairs pairs of tokens, interleaved once and then used by all four octets of rows.
struct TokenTile {
  std::int8_t quants[4][kPairs][16];  // [column group]: eight columns of the first token, then of the second
  float scale[kPairs][4];             // {a, a, b, b}
  float weighted_sum[kPairs][4];      // scale * sum of the quants; for types with a minimum
};

template <WeightType T, int kTokenPairs>
void interleave(const Activations& a, std::int64_t first, std::int64_t tokens, std::int64_t chunk, std::int64_t count,
                TokenTile* out) {
  unroll<kTokenPairs>([&](auto pair) KAZEIA_INLINE {
    // The second half of an odd pair repeats the first; its results are never stored.
    const std::int64_t token[2] = {first + 2 * pair, first + std::min<std::int64_t>(2 * pair + 1, tokens - 1)};
    const std::int8_t* quants[2] = {a.quants_of(token[0]) + chunk * 32, a.quants_of(token[1]) + chunk * 32};
    const float* scales[2] = {a.scales_of(token[0]) + chunk, a.scales_of(token[1]) + chunk};
    const std::int32_t* sums[2] = {a.sums_of(token[0]) + 2 * chunk, a.sums_of(token[1]) + 2 * chunk};
    for (std::int64_t block = 0; block < count; ++block) {
      TokenTile& to = out[block];
      unroll<2>([&](auto half) KAZEIA_INLINE {
        const int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(quants[0] + 32 * block + 16 * half));
        const int64x2_t y = vreinterpretq_s64_s8(vld1q_s8(quants[1] + 32 * block + 16 * half));
        vst1q_s8(to.quants[2 * half][pair], vreinterpretq_s8_s64(vzip1q_s64(x, y)));
        vst1q_s8(to.quants[2 * half + 1][pair], vreinterpretq_s8_s64(vzip2q_s64(x, y)));
      });
      const float scale[2] = {scales[0][block], scales[1][block]};
      vst1q_f32(to.scale[pair], vcombine_f32(vdup_n_f32(scale[0]), vdup_n_f32(scale[1])));
      if constexpr (Traits<T>::kMinimum) {
        const float sum[2] = {scale[0] * static_cast<float>(sums[0][2 * block] + sums[0][2 * block + 1]),
                              scale[1] * static_cast<float>(sums[1][2 * block] + sums[1][2 * block + 1])};
        vst1q_f32(to.weighted_sum[pair], vcombine_f32(vdup_n_f32(sum[0]), vdup_n_f32(sum[1])));
      }
    }
  });
}

// Eight rows x `tokens` tokens (2 * kTokenPairs, or one less) x `count` tiles; adds to `out` unless `fresh`.
template <WeightType T, int kTokenPairs>
[[gnu::noinline]] void multiply(const std::uint8_t* record, const TokenTile* tile, std::int64_t count, float* out,
                                std::int64_t out_stride, std::int64_t tokens, bool fresh) {
  // Lanes of an accumulator: token 0 x rows 0 and 1, token 1 x rows 0 and 1.
  float32x4_t total[4][kTokenPairs];
  unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE {
    unroll<2>([&](auto quad) KAZEIA_INLINE {
      float32x4_t before[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
      if (!fresh) {
        before[0] = vld1q_f32(out + 2 * p * out_stride + 4 * quad);
        if (2 * p + 1 < tokens) before[1] = vld1q_f32(out + (2 * p + 1) * out_stride + 4 * quad);
      }
      const float64x2_t x = vreinterpretq_f64_f32(before[0]), y = vreinterpretq_f64_f32(before[1]);
      total[2 * quad][p] = vreinterpretq_f32_f64(vzip1q_f64(x, y));
      total[2 * quad + 1][p] = vreinterpretq_f32_f64(vzip2q_f64(x, y));
    });
  });
  for (std::int64_t block = 0; block < count; ++block, record += kRecordBytes<T>, ++tile) {
    const auto* weights = reinterpret_cast<const std::int8_t*>(record);
    const auto* scales = reinterpret_cast<const float*>(record + 256);
    unroll<Traits<T>::kPhases>([&](auto phase) KAZEIA_INLINE {
      constexpr int kGroups = 4 / Traits<T>::kPhases;
      int32x4_t dot[4][kTokenPairs];
      unroll<4>([&](auto i)
                    KAZEIA_INLINE { unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE { dot[i][p] = vdupq_n_s32(0); }); });
      unroll<kGroups>([&](auto g) KAZEIA_INLINE {
        constexpr int kGroup = phase * 2 + g;
        int8x16_t a[kTokenPairs];
        unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE { a[p] = vld1q_s8(tile->quants[kGroup][p]); });
        unroll<4>([&](auto i) KAZEIA_INLINE {
          const int8x16_t w = vld1q_s8(weights + kGroup * 64 + i * 16);
          unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE { dot[i][p] = vmmlaq_s32(dot[i][p], a[p], w); });
        });
      });
      unroll<4>([&](auto i) KAZEIA_INLINE {
        const float32x4_t scale = vld1q_f32(scales + 16 * phase + 4 * i);
        unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE {
          const float32x4_t both = vmulq_f32(scale, vld1q_f32(tile->scale[p]));
          total[i][p] = vfmaq_f32(total[i][p], vcvtq_f32_s32(dot[i][p]), both);
        });
      });
    });
    if constexpr (Traits<T>::kMinimum) {
      unroll<4>([&](auto i) KAZEIA_INLINE {
        const float32x4_t minimum = vld1q_f32(scales + 16 + 4 * i);
        unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE {
          total[i][p] = vfmaq_f32(total[i][p], minimum, vld1q_f32(tile->weighted_sum[p]));
        });
      });
    }
  }
  unroll<kTokenPairs>([&](auto p) KAZEIA_INLINE {
    unroll<2>([&](auto quad) KAZEIA_INLINE {
      const float64x2_t x = vreinterpretq_f64_f32(total[2 * quad][p]);
      const float64x2_t y = vreinterpretq_f64_f32(total[2 * quad + 1][p]);
      vst1q_f32(out + 2 * p * out_stride + 4 * quad, vreinterpretq_f32_f64(vzip1q_f64(x, y)));
      if (2 * p + 1 < tokens) {
        vst1q_f32(out + (2 * p + 1) * out_stride + 4 * quad, vreinterpretq_f32_f64(vzip2q_f64(x, y)));
      }
    });
  });
}

template <WeightType T, int kTokenPairs>
void token_block(const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t tokens,
                 std::int64_t chunk, float* out, std::int64_t out_stride) {
  TokenTile tiles[kChunk];
  const std::int64_t count = std::min(kChunk, a.blocks - chunk);
  interleave<T, kTokenPairs>(a, first, tokens, chunk, count, tiles);
  for (int octet = 0; octet < 4; ++octet) {
    multiply<T, kTokenPairs>(panel + (octet * a.blocks + chunk) * kRecordBytes<T>, tiles, count, out + 8 * octet,
                             out_stride, tokens, chunk == 0);
  }
}

template <WeightType T>
void gemm_of(const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count, float* out,
             std::int64_t out_stride) {
  for (std::int64_t chunk = 0; chunk < a.blocks; chunk += kChunk) {
    for (std::int64_t t = 0; t < count;) {
      const std::int64_t tokens = std::min<std::int64_t>(kTokenBlock, count - t);
      const auto block = tokens > 2 ? token_block<T, 2> : token_block<T, 1>;
      block(panel, a, first + t, tokens, chunk, out + t * out_stride, out_stride);
      t += tokens;
    }
  }
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

const KernelSet& i8mm_kernels() {
  static const KernelSet set{"neon-i8mm", dotprod_kernels().quantise, dotprod_kernels().gemv, panel_bytes, expand,
                             gemm};
  return set;
}

}  // namespace kazeia::tiles
