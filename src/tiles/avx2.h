// What the AVX2 kernels share: how the types differ, and how four columns of a row come into one lane.
//
// For kernel_avx2.cpp only, which is compiled for AVX2: always inlined, so that no copy for AVX2 is left for the linker
// to hand to a machine without it.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "tiles/half.h"
#include "tiles/layout.h"

namespace kazeia::tiles::avx2 {

[[gnu::always_inline]] inline __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
[[gnu::always_inline]] inline __m128i load_half(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// Four activations in every lane.
[[gnu::always_inline]] inline __m256i broadcast(const std::int8_t* p) {
  std::int32_t four;
  std::memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

[[gnu::always_inline]] inline __m256i widen(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Weights are multiplied as unsigned bytes q with the true weight q - kOffset; the offset's share of the product is
// -kOffset * sum(activations), exact in int32. Types whose bytes fill eight bits would leave int16 that way; they
// (kSigned) are multiplied as |w| times the activation with w's sign: 2 * 128 * 127 = 32512.
template <WeightType type>
struct Traits {
  static constexpr bool kSigned = type == WeightType::kQ8_0 || type == WeightType::kIQ4_NL;
  static constexpr bool kMinimum = type == WeightType::kQ4_1 || type == WeightType::kQ4_K;
  static constexpr int kParts = type == WeightType::kQ6_K ? 2 : 1;  // scales per row of a tile
  static constexpr int kOffset = type == WeightType::kQ4_0    ? 8
                                 : type == WeightType::kQ6_K  ? 32
                                 : type == WeightType::kMXFP4 ? 12
                                                              : 0;
  // Groups of four columns that may be summed in int16: 8 * 2 * 15 * 127 = 30480 for nibbles, 4 * 2 * 24 * 127 =
  // 24384 for MXFP4, 2 * 2 * 63 * 127 = 32004 for Q6_K.
  static constexpr int kGroupsPerSum = kSigned ? 1 : type == WeightType::kMXFP4 ? 4 : type == WeightType::kQ6_K ? 2 : 8;
  static constexpr int kTileBytes = type == WeightType::kQ8_0                                ? 1088
                                    : type == WeightType::kQ6_K                              ? 896
                                    : type == WeightType::kQ4_1 || type == WeightType::kQ4_K ? 640
                                    : type == WeightType::kMXFP4                             ? 544
                                                                                             : 576;
  static constexpr int kScaleOffset = type == WeightType::kQ8_0 ? 1024 : type == WeightType::kQ6_K ? 768 : 512;
};

// From nibbles to the byte that is multiplied.
template <WeightType type>
[[gnu::always_inline]] inline __m256i decode(__m256i nibbles) {
  if constexpr (type == WeightType::kIQ4_NL) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_half(kIq4nlValues)), nibbles);
  } else if constexpr (type == WeightType::kMXFP4) {
    const __m128i table = _mm_add_epi8(load_half(kMxfp4Values), _mm_set1_epi8(Traits<type>::kOffset));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
  } else {
    return nibbles;
  }
}

// Pairs of products in int16. For signed weights |w| and the sign move is done here; -128 is fine as |w|, and
// activations never are -128.
template <WeightType type>
[[gnu::always_inline]] inline __m256i multiply(__m256i weights, __m256i activations) {
  if constexpr (Traits<type>::kSigned) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
  } else {
    return _mm256_maddubs_epi16(weights, activations);
  }
}

// Eight rows' scales (or minimums) in f32.
[[gnu::always_inline]] inline __m256 halves(const std::uint8_t* p) {
  return _mm256_cvtph_ps(load_half(p));
}

[[gnu::always_inline]] inline __m256 exponents(const std::uint8_t* p) {  // half of 2^(e - 127), as e8m0_to_half_float
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

// The four pairs (f16 scale, f16 minimum) at p as scales in the low and minimums in the high half.
[[gnu::always_inline]] inline __m128i split_pairs(const std::uint8_t* p) {
  return _mm_shuffle_epi8(load_half(p), _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

// Byte rows cp = 4j..4j+3 of a nibble tile: a lane per matrix row, its low nibbles columns 8j+{0,2,4,6}, its high ones
// 8j+{1,3,5,7}.
[[gnu::always_inline]] inline void interleave(const std::uint8_t* p, __m256i out[4]) {
  const __m256i a = load(p), b = load(p + 32), c = load(p + 64), d = load(p + 96);
  const __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
  out[0] = _mm256_unpacklo_epi16(ab_low, cd_low);
  out[1] = _mm256_unpackhi_epi16(ab_low, cd_low);
  out[2] = _mm256_unpacklo_epi16(ab_high, cd_high);
  out[3] = _mm256_unpackhi_epi16(ab_high, cd_high);
}

// Columns 16m..16m+15 of eight rows of a Q6_K tile, in four registers of four columns.
[[gnu::always_inline]] inline void read_q6_k(const std::uint8_t* tile, int m, int eight, __m256i out[4]) {
  const __m256i nibble = _mm256_set1_epi8(15), two_bits = _mm256_set1_epi8(0x30);
  const __m256i high = load(tile + 512 + 128 * m + 32 * eight);
  for (int i = 0; i < 2; ++i) {
    const __m256i low = load(tile + 128 * (2 * m + i) + 32 * eight);
    const __m256i even = i == 0 ? _mm256_slli_epi16(high, 4) : high;
    const __m256i odd = i == 0 ? _mm256_slli_epi16(high, 2) : _mm256_srli_epi16(high, 2);
    out[2 * i] = _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(even, two_bits));
    out[2 * i + 1] =
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 4), nibble), _mm256_and_si256(odd, two_bits));
  }
}

}  // namespace kazeia::tiles::avx2
