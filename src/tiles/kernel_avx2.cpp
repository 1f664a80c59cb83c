// AVX2 + FMA + F16C. Products are u8 x s8 pairs summed into int16 (vpmaddubsw); every path below either cannot leave
// int16 (the bound stands beside it) or widens first, so all integer sums are exact.
//
// No software prefetch: the tiles are read from front to back, which the hardware prefetcher follows to the speed of a
// plain read; prefetch instructions on top cost 5 to 15 % of it (measured on Zen 4).

#include <immintrin.h>

#include <cstring>

#include "tiles/avx2.h"
#include "tiles/kernels.h"
#include "tiles/prefetch.h"

namespace kazeia::tiles {
namespace {

using namespace avx2;

// ---- Quantisation of activations -----------------------------------------------------------------------------

void quantise_block(const float* x, ColumnOrder order, std::int8_t* quants, float* scale_out, std::int32_t* sums) {
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 values[4];
  for (int i = 0; i < 4; ++i) values[i] = _mm256_loadu_ps(x + 8 * i);
  const __m256 most =
      _mm256_max_ps(_mm256_max_ps(_mm256_and_ps(values[0], no_sign), _mm256_and_ps(values[1], no_sign)),
                    _mm256_max_ps(_mm256_and_ps(values[2], no_sign), _mm256_and_ps(values[3], no_sign)));
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  top = _mm_max_ss(top, _mm_movehdup_ps(top));
  const float largest = _mm_cvtss_f32(top);
  const float scale = _cvtsh_ss(_cvtss_sh(largest / 127.0f, _MM_FROUND_TO_NEAREST_INT));
  const __m256 inverse = _mm256_set1_ps(scale != 0 ? 127.0f / largest : 0.0f);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse));
  // The packs work per 128-bit half: fours of columns arrive as 0 2 4 6 1 3 5 7 (in units of four).
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i natural = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  const __m256i fours = widen(_mm256_maddubs_epi16(_mm256_set1_epi8(1), natural));
  const __m256i eights = _mm256_hadd_epi32(fours, fours);
  const __m256i sixteens = _mm256_hadd_epi32(eights, eights);
  sums[0] = _mm256_extract_epi32(sixteens, 0);
  sums[1] = _mm256_extract_epi32(sixteens, 4);
  const __m256i even_odd = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,  //
                                            0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants),
                      order == ColumnOrder::kNatural ? natural : _mm256_shuffle_epi8(natural, even_odd));
  *scale_out = scale;
}

void quantise(const float* x, std::int64_t columns, ColumnOrder order, const Activations& out, std::int64_t token) {
  std::int8_t* quants = out.quants + token * out.quant_stride;
  float* scales = out.scales + token * out.blocks;
  std::int32_t* sums = out.sums + token * out.blocks * 2;
  const std::int64_t whole = columns / 32;
  for (std::int64_t b = 0; b < whole; ++b) {
    quantise_block(x + b * 32, order, quants + b * 32, scales + b, sums + 2 * b);
  }
  if (whole < out.blocks) {
    float rest[32] = {};
    std::memcpy(rest, x + whole * 32, static_cast<std::size_t>(columns - whole * 32) * sizeof(float));
    quantise_block(rest, order, quants + whole * 32, scales + whole, sums + 2 * whole);
  }
}

// ---- One token -----------------------------------------------------------------------------------------------

// Nibble tiles come out of the byte interleave with rows 4i..4i+3 in the low and 16+4i.. in the high half of
// register i. This is the order of the accumulators below; scales are loaded in it, and the result is put right once.
template <WeightType type>
[[gnu::always_inline]] inline void load_scales(const std::uint8_t* scales, __m256 out[4], __m256 minimums[4]) {
  if constexpr (Traits<type>::kMinimum) {
    for (int i = 0; i < 4; ++i) {
      const __m128i low = split_pairs(scales + 16 * i), high = split_pairs(scales + 64 + 16 * i);
      out[i] = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
      minimums[i] = _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high));
    }
  } else if constexpr (type == WeightType::kMXFP4) {
    for (int i = 0; i < 2; ++i) {
      const __m256 low = exponents(scales + 8 * i), high = exponents(scales + 16 + 8 * i);
      out[2 * i] = _mm256_permute2f128_ps(low, high, 0x20);
      out[2 * i + 1] = _mm256_permute2f128_ps(low, high, 0x31);
    }
  } else {
    for (int i = 0; i < 2; ++i) {
      const __m128i low = load_half(scales + 16 * i), high = load_half(scales + 32 + 16 * i);
      out[2 * i] = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
      out[2 * i + 1] = _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high));
    }
  }
}

template <WeightType type>
void gemv_nibbles(const std::uint8_t* tile, const Activations& a, std::int64_t token, float* out) {
  using T = Traits<type>;
  const std::int8_t* quants = a.quants_of(token);
  const float* scales = a.scales_of(token);
  const std::int32_t* sums = a.sums_of(token);
  const __m256i mask = _mm256_set1_epi8(15);
  __m256 acc[4] = {};
  for (std::int64_t block = 0; block < a.blocks; ++block, tile += T::kTileBytes, quants += 32) {
    const int sum = sums[2 * block] + sums[2 * block + 1];
    __m256i dot[4];
    for (auto& lane : dot) lane = _mm256_set1_epi32(-T::kOffset * sum);
    __m256i pairs[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i even = broadcast(quants + 8 * j), odd = broadcast(quants + 8 * j + 4);
      __m256i bytes[4];
      interleave(tile + 128 * j, bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m256i low = multiply<type>(decode<type>(_mm256_and_si256(bytes[i], mask)), even);
        const __m256i high = multiply<type>(decode<type>(_mm256_and_si256(_mm256_srli_epi16(bytes[i], 4), mask)), odd);
        if constexpr (T::kSigned) {
          dot[i] = _mm256_add_epi32(dot[i], _mm256_add_epi32(widen(low), widen(high)));
        } else {
          const __m256i both = _mm256_add_epi16(low, high);
          const bool first = 2 * j % T::kGroupsPerSum == 0;
          pairs[i] = first ? both : _mm256_add_epi16(pairs[i], both);
          if ((2 * j + 2) % T::kGroupsPerSum == 0) dot[i] = _mm256_add_epi32(dot[i], widen(pairs[i]));
        }
      }
    }
    __m256 weight_scales[4], minimums[4];
    load_scales<type>(tile + T::kScaleOffset, weight_scales, minimums);
    const __m256 scale = _mm256_set1_ps(scales[block]);
    const __m256 scaled_sum = _mm256_set1_ps(scales[block] * static_cast<float>(sum));
    for (int i = 0; i < 4; ++i) {
      acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i]), _mm256_mul_ps(weight_scales[i], scale), acc[i]);
      if constexpr (T::kMinimum) acc[i] = _mm256_fmadd_ps(minimums[i], scaled_sum, acc[i]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_ps(out + 4 * i, _mm256_castps256_ps128(acc[i]));
    _mm_storeu_ps(out + 16 + 4 * i, _mm256_extractf128_ps(acc[i], 1));
  }
}

void gemv_q8_0(const std::uint8_t* tile, const Activations& a, std::int64_t token, float* out) {
  using T = Traits<WeightType::kQ8_0>;
  const std::int8_t* quants = a.quants_of(token);
  const float* scales = a.scales_of(token);
  __m256 acc[4] = {};  // rows 0-3 | 8-11, 4-7 | 12-15, 16-19 | 24-27, 20-23 | 28-31
  for (std::int64_t block = 0; block < a.blocks; ++block, tile += T::kTileBytes, quants += 32) {
    __m256i dot[4] = {};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i four = broadcast(quants + 4 * g);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256i first = load(tile + 128 * g + 32 * i), second = load(tile + 128 * g + 64 + 32 * i);
        const __m256i low = _mm256_unpacklo_epi16(first, second), high = _mm256_unpackhi_epi16(first, second);
        dot[2 * i] = _mm256_add_epi32(dot[2 * i], widen(multiply<WeightType::kQ8_0>(low, four)));
        dot[2 * i + 1] = _mm256_add_epi32(dot[2 * i + 1], widen(multiply<WeightType::kQ8_0>(high, four)));
      }
    }
    const __m256 scale = _mm256_set1_ps(scales[block]);
    for (int i = 0; i < 2; ++i) {
      const __m128i low = load_half(tile + T::kScaleOffset + 32 * i);
      const __m128i high = load_half(tile + T::kScaleOffset + 32 * i + 16);
      const __m256 even = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
      const __m256 odd = _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high));
      acc[2 * i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[2 * i]), _mm256_mul_ps(even, scale), acc[2 * i]);
      acc[2 * i + 1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[2 * i + 1]), _mm256_mul_ps(odd, scale), acc[2 * i + 1]);
    }
  }
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_ps(out + 16 * i, _mm256_permute2f128_ps(acc[2 * i], acc[2 * i + 1], 0x20));
    _mm256_storeu_ps(out + 16 * i + 8, _mm256_permute2f128_ps(acc[2 * i], acc[2 * i + 1], 0x31));
  }
}

void gemv_q6_k(const std::uint8_t* tile, const Activations& a, std::int64_t token, float* out) {
  using T = Traits<WeightType::kQ6_K>;
  const std::int8_t* quants = a.quants_of(token);
  const float* scales = a.scales_of(token);
  const std::int32_t* sums = a.sums_of(token);
  __m256 acc[4] = {};
  for (std::int64_t block = 0; block < a.blocks; ++block, tile += T::kTileBytes, quants += 32) {
    touch_in_order(tile, T::kTileBytes);
    const __m256 scale = _mm256_set1_ps(scales[block]);
#pragma GCC unroll 2
    for (int m = 0; m < 2; ++m) {
      const __m256i start = _mm256_set1_epi32(-T::kOffset * sums[2 * block + m]);
      __m256i fours[4];
      for (int g = 0; g < 4; ++g) fours[g] = broadcast(quants + 16 * m + 4 * g);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        __m256i q[4];
        read_q6_k(tile, m, i, q);
        const __m256i first =
            _mm256_add_epi16(_mm256_maddubs_epi16(q[0], fours[0]), _mm256_maddubs_epi16(q[1], fours[1]));
        const __m256i second =
            _mm256_add_epi16(_mm256_maddubs_epi16(q[2], fours[2]), _mm256_maddubs_epi16(q[3], fours[3]));
        const __m256i dot = _mm256_add_epi32(start, _mm256_add_epi32(widen(first), widen(second)));
        const __m256 weight_scale = halves(tile + T::kScaleOffset + 64 * m + 16 * i);
        acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(weight_scale, scale), acc[i]);
      }
    }
  }
  for (int i = 0; i < 4; ++i) _mm256_storeu_ps(out + 8 * i, acc[i]);
}

template <WeightType type>
void gemv_of(const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  if constexpr (type == WeightType::kQ8_0) {
    gemv_q8_0(tiles, a, token, out);
  } else if constexpr (type == WeightType::kQ6_K) {
    gemv_q6_k(tiles, a, token, out);
  } else {
    gemv_nibbles<type>(tiles, a, token, out);
  }
}

// ---- Many tokens ---------------------------------------------------------------------------------------------

// A panel is, for each half of the 32 rows and for each tile: quants [8 groups of four columns][16 rows][4] as they
// are multiplied, groups in the activations' order; f32 scales [parts][16]; f32 minimums [16] if the type has them.
template <WeightType type>
constexpr std::int64_t kHalfTileBytes = 512 + 64 * (Traits<type>::kParts + (Traits<type>::kMinimum ? 1 : 0));

template <WeightType type>
void expand_of(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* panel) {
  using T = Traits<type>;
  constexpr std::int64_t stride = kHalfTileBytes<type>;
  for (std::int64_t block = 0; block < blocks; ++block, tile += T::kTileBytes) {
    std::uint8_t* half[2] = {panel + block * stride, panel + (blocks + block) * stride};
    const auto store = [&](int group, int eight, __m256i value) {  // rows 8 * eight ..
      _mm256_store_si256(reinterpret_cast<__m256i*>(half[eight / 2] + 64 * group + 32 * (eight % 2)), value);
    };
    const auto store_f32 = [&](int vector, int eight, __m256 value) {
      _mm256_store_ps(reinterpret_cast<float*>(half[eight / 2] + 512 + 64 * vector + 32 * (eight % 2)), value);
    };
    const std::uint8_t* scales = tile + T::kScaleOffset;
    if constexpr (type == WeightType::kQ6_K) {
      for (int m = 0; m < 2; ++m) {
        for (int eight = 0; eight < 4; ++eight) {
          __m256i q[4];
          read_q6_k(tile, m, eight, q);
          for (int g = 0; g < 4; ++g) store(4 * m + g, eight, q[g]);
          store_f32(m, eight, halves(scales + 64 * m + 16 * eight));
        }
      }
    } else if constexpr (type == WeightType::kQ8_0) {
      for (int g = 0; g < 8; ++g) {
        for (int i = 0; i < 2; ++i) {
          const __m256i first = load(tile + 128 * g + 32 * i), second = load(tile + 128 * g + 64 + 32 * i);
          const __m256i low = _mm256_unpacklo_epi16(first, second), high = _mm256_unpackhi_epi16(first, second);
          store(g, 2 * i, _mm256_permute2x128_si256(low, high, 0x20));
          store(g, 2 * i + 1, _mm256_permute2x128_si256(low, high, 0x31));
        }
      }
      for (int eight = 0; eight < 4; ++eight) store_f32(0, eight, halves(scales + 16 * eight));
    } else {
      const __m256i mask = _mm256_set1_epi8(15);
      for (int j = 0; j < 4; ++j) {
        __m256i bytes[4];
        interleave(tile + 128 * j, bytes);
        for (int i = 0; i < 2; ++i) {
          const __m256i low = _mm256_permute2x128_si256(bytes[2 * i], bytes[2 * i + 1], 0x20);   // rows 8i..
          const __m256i high = _mm256_permute2x128_si256(bytes[2 * i], bytes[2 * i + 1], 0x31);  // rows 16 + 8i..
          for (const auto& [eight, value] : {std::pair{i, low}, std::pair{2 + i, high}}) {
            store(2 * j, eight, decode<type>(_mm256_and_si256(value, mask)));
            store(2 * j + 1, eight, decode<type>(_mm256_and_si256(_mm256_srli_epi16(value, 4), mask)));
          }
        }
      }
      for (int eight = 0; eight < 4; ++eight) {
        if constexpr (T::kMinimum) {
          const __m128i first = split_pairs(scales + 32 * eight), second = split_pairs(scales + 32 * eight + 16);
          store_f32(0, eight, _mm256_cvtph_ps(_mm_unpacklo_epi64(first, second)));
          store_f32(1, eight, _mm256_cvtph_ps(_mm_unpackhi_epi64(first, second)));
        } else if constexpr (type == WeightType::kMXFP4) {
          store_f32(0, eight, exponents(scales + 8 * eight));
        } else {
          store_f32(0, eight, halves(scales + 16 * eight));
        }
      }
    }
  }
}

// 16 rows x `tokens` tokens over `blocks` tiles that start at block `first_block`; adds to `out`.
template <WeightType type, int tokens>
void multiply_block(const std::uint8_t* half_panel, std::int64_t first_block, std::int64_t blocks, const Activations& a,
                    std::int64_t token, float* out, std::int64_t out_stride) {
  using T = Traits<type>;
  constexpr int kGroupsPerPart = 8 / T::kParts;
  const std::int8_t* quants[tokens];
  const float* scales[tokens];
  const std::int32_t* sums[tokens];
  __m256 acc[tokens][2];
  for (int t = 0; t < tokens; ++t) {
    quants[t] = a.quants_of(token + t) + first_block * 32;
    scales[t] = a.scales_of(token + t) + first_block;
    sums[t] = a.sums_of(token + t) + 2 * first_block;
    for (int v = 0; v < 2; ++v) acc[t][v] = _mm256_loadu_ps(out + t * out_stride + 8 * v);
  }
  const std::uint8_t* w = half_panel + first_block * kHalfTileBytes<type>;
  for (std::int64_t block = 0; block < blocks; ++block, w += kHalfTileBytes<type>) {
    const auto* weight_scales = reinterpret_cast<const float*>(w + 512);
#pragma GCC unroll 2
    for (int part = 0; part < T::kParts; ++part) {
      __m256i pairs[tokens][2], dot[tokens][2];
#pragma GCC unroll 8
      for (int g = 0; g < kGroupsPerPart; ++g) {
        const int group = part * kGroupsPerPart + g;
        const auto* at = reinterpret_cast<const __m256i*>(w + 64 * group);
        const __m256i weights[2] = {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
        const bool opens = g % T::kGroupsPerSum == 0, closes = (g + 1) % T::kGroupsPerSum == 0;
        const bool first_sum = g < T::kGroupsPerSum;
#pragma GCC unroll 4
        for (int t = 0; t < tokens; ++t) {
          const __m256i four = broadcast(quants[t] + block * 32 + 4 * group);
#pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) {
            const __m256i product = multiply<type>(weights[v], four);
            pairs[t][v] = opens ? product : _mm256_add_epi16(pairs[t][v], product);
            // Without this GCC computes all products of the tile first and spills most of them.
            asm volatile("" : "+x"(pairs[t][v]));
            if (closes) dot[t][v] = first_sum ? widen(pairs[t][v]) : _mm256_add_epi32(dot[t][v], widen(pairs[t][v]));
          }
        }
      }
#pragma GCC unroll 4
      for (int t = 0; t < tokens; ++t) {
        const int sum = T::kParts == 2 ? sums[t][2 * block + part] : sums[t][2 * block] + sums[t][2 * block + 1];
        const __m256 scale = _mm256_broadcast_ss(scales[t] + block);
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          __m256i whole = dot[t][v];
          if constexpr (T::kOffset != 0) whole = _mm256_sub_epi32(whole, _mm256_set1_epi32(T::kOffset * sum));
          const __m256 weight_scale = _mm256_load_ps(weight_scales + 16 * part + 8 * v);
          __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(whole), weight_scale);
          if constexpr (T::kMinimum) {
            term = _mm256_fmadd_ps(_mm256_load_ps(weight_scales + 16 + 8 * v), _mm256_set1_ps(static_cast<float>(sum)),
                                   term);
          }
          acc[t][v] = _mm256_fmadd_ps(term, scale, acc[t][v]);
        }
      }
    }
  }
  for (int t = 0; t < tokens; ++t) {
    for (int v = 0; v < 2; ++v) _mm256_storeu_ps(out + t * out_stride + 8 * v, acc[t][v]);
  }
}

template <WeightType type>
void gemm_of(const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count, float* out,
             std::int64_t out_stride) {
  // Tiles that stay in the L1 cache (half a tile is 576 bytes and more) while all tokens pass by.
  constexpr std::int64_t kChunk = 24;
  for (std::int64_t t = 0; t < count; ++t) std::memset(out + t * out_stride, 0, 32 * sizeof(float));
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* half_panel = panel + half * a.blocks * kHalfTileBytes<type>;
    for (std::int64_t block = 0; block < a.blocks; block += kChunk) {
      const std::int64_t blocks = a.blocks - block < kChunk ? a.blocks - block : kChunk;
      std::int64_t t = 0;
      const auto at = [&] { return out + t * out_stride + 16 * half; };
      for (; t + 4 <= count; t += 4) multiply_block<type, 4>(half_panel, block, blocks, a, first + t, at(), out_stride);
      switch (count - t) {
        case 3:
          multiply_block<type, 3>(half_panel, block, blocks, a, first + t, at(), out_stride);
          break;
        case 2:
          multiply_block<type, 2>(half_panel, block, blocks, a, first + t, at(), out_stride);
          break;
        case 1:
          multiply_block<type, 1>(half_panel, block, blocks, a, first + t, at(), out_stride);
          break;
        default:
          break;
      }
    }
  }
}

// ---- The table -----------------------------------------------------------------------------------------------

#define KAZEIA_FOR_TYPE(function, ...)                   \
  switch (type) {                                        \
    case WeightType::kQ4_0:                              \
      return function<WeightType::kQ4_0>(__VA_ARGS__);   \
    case WeightType::kQ4_1:                              \
      return function<WeightType::kQ4_1>(__VA_ARGS__);   \
    case WeightType::kQ8_0:                              \
      return function<WeightType::kQ8_0>(__VA_ARGS__);   \
    case WeightType::kQ4_K:                              \
      return function<WeightType::kQ4_K>(__VA_ARGS__);   \
    case WeightType::kQ6_K:                              \
      return function<WeightType::kQ6_K>(__VA_ARGS__);   \
    case WeightType::kIQ4_NL:                            \
      return function<WeightType::kIQ4_NL>(__VA_ARGS__); \
    case WeightType::kMXFP4:                             \
      return function<WeightType::kMXFP4>(__VA_ARGS__);  \
  }

void gemv(WeightType type, const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  KAZEIA_FOR_TYPE(gemv_of, tiles, a, token, out)
}

template <WeightType type>
std::size_t panel_bytes_of(std::int64_t blocks) {
  return static_cast<std::size_t>(2 * blocks * kHalfTileBytes<type>);
}

std::size_t panel_bytes(WeightType type, std::int64_t blocks) {
  KAZEIA_FOR_TYPE(panel_bytes_of, blocks)
  return 0;
}

void expand(WeightType type, const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel) {
  KAZEIA_FOR_TYPE(expand_of, tiles, blocks, panel)
}

void gemm(WeightType type, const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count,
          float* out, std::int64_t out_stride) {
  KAZEIA_FOR_TYPE(gemm_of, panel, a, first, count, out, out_stride)
}

#undef KAZEIA_FOR_TYPE

}  // namespace

const KernelSet& avx2_kernels() {
  static constexpr KernelSet set{"avx2", quantise, gemv, panel_bytes, expand, gemm};
  return set;
}

}  // namespace kazeia::tiles
