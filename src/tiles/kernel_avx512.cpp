// AVX-512 with VNNI (u8 x s8 dot products into 32-bit lanes) and VBMI (byte permutes over two registers).
//
// One lane holds one matrix row. A dot product instruction takes four columns of 16 rows; the four activations come
// as a broadcast. Weights are made unsigned by an offset, and the offset is paid back by starting the accumulator
// at -offset * sum(activations), which is known per 32 columns.

// GCC 12's own intrinsics start from an undefined register and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <immintrin.h>

#include <cstring>

#include "tiles/half.h"
#include "tiles/kernels.h"
#include "tiles/prefetch.h"

namespace kazeia::tiles {
namespace {

constexpr int kTokenBlock = 6;  // 2 x 6 integer and 2 x 6 float accumulators leave 8 registers for operands

// --- quantise -------------------------------------------------------------------------------------------------

void quantise_block(const float* x, __mmask16 low_mask, __mmask16 high_mask, ColumnOrder order, std::int8_t* quants,
                    float* scale, std::int32_t* sums) {
  const __m512 low = _mm512_maskz_loadu_ps(low_mask, x);
  const __m512 high = _mm512_maskz_loadu_ps(high_mask, x + 16);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  *scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(largest / 127.0f), _MM_FROUND_TO_NEAREST_INT)));
  const __m512 inverse = _mm512_set1_ps(*scale != 0 ? 127.0f / largest : 0.0f);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  // What is not a number becomes the smallest int32; the sums are those of the bytes that are kept.
  const __m512i smallest = _mm512_set1_epi32(-128);
  const __m512i q_low =
      _mm512_max_epi32(_mm512_cvtps_epi32(_mm512_roundscale_ps(_mm512_mul_ps(low, inverse), kNearest)), smallest);
  const __m512i q_high =
      _mm512_max_epi32(_mm512_cvtps_epi32(_mm512_roundscale_ps(_mm512_mul_ps(high, inverse), kNearest)), smallest);
  sums[0] = _mm512_reduce_add_epi32(q_low);
  sums[1] = _mm512_reduce_add_epi32(q_high);
  __m128i a = _mm512_cvtepi32_epi8(q_low);
  __m128i b = _mm512_cvtepi32_epi8(q_high);
  if (order == ColumnOrder::kEvenOdd) {
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    a = _mm_shuffle_epi8(a, even_odd);
    b = _mm_shuffle_epi8(b, even_odd);
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(quants), a);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(quants + 16), b);
}

void quantise(const float* x, std::int64_t columns, ColumnOrder order, const Activations& out, std::int64_t token) {
  std::int8_t* quants = out.quants + token * out.quant_stride;
  float* scales = out.scales + token * out.blocks;
  std::int32_t* sums = out.sums + token * out.blocks * 2;
  const std::int64_t whole = columns / 32;
  for (std::int64_t block = 0; block < whole; ++block) {
    quantise_block(x + block * 32, 0xffff, 0xffff, order, quants + block * 32, scales + block, sums + 2 * block);
  }
  if (whole < out.blocks) {
    const auto left = static_cast<unsigned>(columns - whole * 32);
    const std::uint32_t mask = (1u << left) - 1u;
    quantise_block(x + whole * 32, static_cast<__mmask16>(mask), static_cast<__mmask16>(mask >> 16), order,
                   quants + whole * 32, scales + whole, sums + 2 * whole);
  }
}

// --- reading a tile -------------------------------------------------------------------------------------------

// The 16 registers of a tile: columns [quad][rows 0..15 | 16..31] as unsigned bytes, four columns a lane, quads in the
// activations' column order.
struct Expanded {
  __m512i w[8][2];
};

// Byte permutation that brings four byte rows of a nibble tile (32 matrix rows each) into one lane per matrix row.
__m512i nibble_gather(int first_row) {
  alignas(64) std::uint8_t index[64];
  for (int lane = 0; lane < 16; ++lane) {
    for (int i = 0; i < 4; ++i) index[4 * lane + i] = static_cast<std::uint8_t>(32 * i + first_row + lane);
  }
  return _mm512_load_si512(index);
}

__m512i word_gather(int first_row) {
  alignas(64) std::uint16_t index[32];
  for (int lane = 0; lane < 16; ++lane) {
    index[2 * lane] = static_cast<std::uint16_t>(first_row + lane);
    index[2 * lane + 1] = static_cast<std::uint16_t>(32 + first_row + lane);
  }
  return _mm512_load_si512(index);
}

template <WeightType type>
constexpr int kOffset = type == WeightType::kQ4_0                                  ? 8
                        : type == WeightType::kQ6_K                                ? 32
                        : type == WeightType::kQ8_0 || type == WeightType::kIQ4_NL ? 128
                        : type == WeightType::kMXFP4                               ? 12
                                                                                   : 0;
template <WeightType type>
constexpr bool kHasMinimum = type == WeightType::kQ4_1 || type == WeightType::kQ4_K;
template <WeightType type>
constexpr bool kHasCodebook = type == WeightType::kIQ4_NL || type == WeightType::kMXFP4;
template <WeightType type>
constexpr bool kTwoScales = type == WeightType::kQ6_K;

template <WeightType type>
__m512i codebook() {
  const std::int8_t* values = type == WeightType::kIQ4_NL ? kIq4nlValues : kMxfp4Values;
  alignas(16) std::uint8_t shifted[16];
  for (int i = 0; i < 16; ++i) shifted[i] = static_cast<std::uint8_t>(values[i] + kOffset<type>);
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(shifted)));
}

template <WeightType type>
struct Reader {
  __m512i rows_low = type == WeightType::kQ8_0 ? word_gather(0) : nibble_gather(0);
  __m512i rows_high = type == WeightType::kQ8_0 ? word_gather(16) : nibble_gather(16);
  __m512i table = kHasCodebook<type> ? codebook<type>() : _mm512_setzero_si512();

  static __m512i load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }

  // Quads 2 * pair and 2 * pair + 1.
  void pair(const std::uint8_t* tile, int pair, __m512i out[2][2]) const {
    const __m512i low_bits = _mm512_set1_epi8(0x0f);
    if constexpr (type == WeightType::kQ8_0) {
      const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
      for (int i = 0; i < 2; ++i) {
        const __m512i a = load(tile + (2 * pair + i) * 128);
        const __m512i b = load(tile + (2 * pair + i) * 128 + 64);
        out[i][0] = _mm512_xor_si512(_mm512_permutex2var_epi16(a, rows_low, b), sign);
        out[i][1] = _mm512_xor_si512(_mm512_permutex2var_epi16(a, rows_high, b), sign);
      }
    } else if constexpr (type == WeightType::kQ6_K) {
      const __m512i high_bits = _mm512_set1_epi8(0x30);
      for (int half = 0; half < 2; ++half) {
        const __m512i low = load(tile + pair * 128 + half * 64);
        const __m512i high = load(tile + 512 + (pair / 2) * 128 + half * 64);
        // Two high bits of groups 2*pair and 2*pair+1 into bits 4..5.
        const __m512i even = pair % 2 == 0 ? _mm512_slli_epi16(high, 4) : high;
        const __m512i odd = pair % 2 == 0 ? _mm512_slli_epi16(high, 2) : _mm512_srli_epi16(high, 2);
        // (high & 0x30) | (low & 0x0f), in one instruction each: 0xca selects by the mask
        out[0][half] = _mm512_and_si512(_mm512_ternarylogic_epi32(high_bits, even, low, 0xca), _mm512_set1_epi8(0x3f));
        out[1][half] = _mm512_and_si512(_mm512_ternarylogic_epi32(high_bits, odd, _mm512_srli_epi16(low, 4), 0xca),
                                        _mm512_set1_epi8(0x3f));
      }
    } else {
      const __m512i a = load(tile + pair * 128);
      const __m512i b = load(tile + pair * 128 + 64);
      for (int half = 0; half < 2; ++half) {
        const __m512i v = _mm512_permutex2var_epi8(a, half == 0 ? rows_low : rows_high, b);
        out[0][half] = _mm512_and_si512(v, low_bits);
        out[1][half] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_bits);
        if constexpr (kHasCodebook<type>) {
          out[0][half] = _mm512_shuffle_epi8(table, out[0][half]);
          out[1][half] = _mm512_shuffle_epi8(table, out[1][half]);
        }
      }
    }
  }
};

// Scales of 16 rows as f32. `set` 1 is the minimum, or the scale of columns 16..31.
template <WeightType type>
__m512 scales(const std::uint8_t* tile, int half, int set) {
  if constexpr (type == WeightType::kMXFP4) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + 512 + 16 * half)));
    // (e - 1) << 23, except that e of 0 and 1 are subnormal floats
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(normal, _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), subnormal));
  } else if constexpr (kHasMinimum<type>) {
    const __m512i pairs = _mm512_loadu_si512(tile + 512 + 64 * half);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(set == 0 ? pairs : _mm512_srli_epi32(pairs, 16)));
  } else {
    constexpr int offset = type == WeightType::kQ8_0 ? 1024 : type == WeightType::kQ6_K ? 768 : 512;
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + offset + 64 * set + 32 * half)));
  }
}

template <WeightType type>
constexpr int tile_bytes() {
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
      return 576;
    case WeightType::kQ4_1:
    case WeightType::kQ4_K:
      return 640;
    case WeightType::kQ8_0:
      return 1088;
    case WeightType::kMXFP4:
      return 544;
    case WeightType::kQ6_K:
      return 896;
  }
}

__m512i broadcast4(const std::int8_t* p) {
  std::int32_t four;
  std::memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// --- one token ------------------------------------------------------------------------------------------------

template <WeightType type>
void gemv(const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  const Reader<type> reader;
  const std::int8_t* quants = a.quants_of(token);
  const float* activation_scales = a.scales_of(token);
  const std::int32_t* sums = a.sums_of(token);
  __m512 total[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::int64_t block = 0; block < a.blocks; ++block, tiles += tile_bytes<type>(), quants += 32, sums += 2) {
    if constexpr (kTwoScales<type>) touch_in_order(tiles, tile_bytes<type>());
    const __m512 scale = _mm512_set1_ps(activation_scales[block]);
    if constexpr (type == WeightType::kQ4_0 || kHasMinimum<type>) {
      // The high nibbles stay where they are, sixteen times too large, in an accumulator of their own.
      const __m512i low_bits = _mm512_set1_epi8(0x0f);
      __m512i low[2], high[2];
      low[0] = low[1] = _mm512_set1_epi32(-kOffset<type> * (sums[0] + sums[1]));
      high[0] = high[1] = _mm512_setzero_si512();
      for (int pair = 0; pair < 4; ++pair) {
        const __m512i x = Reader<type>::load(tiles + pair * 128);
        const __m512i y = Reader<type>::load(tiles + pair * 128 + 64);
        const __m512i a_even = broadcast4(quants + 8 * pair);
        const __m512i a_odd = broadcast4(quants + 8 * pair + 4);
        for (int half = 0; half < 2; ++half) {
          const __m512i v = _mm512_permutex2var_epi8(x, half == 0 ? reader.rows_low : reader.rows_high, y);
          low[half] = _mm512_dpbusd_epi32(low[half], _mm512_and_si512(v, low_bits), a_even);
          high[half] = _mm512_dpbusd_epi32(high[half], _mm512_andnot_si512(low_bits, v), a_odd);
        }
      }
      for (int half = 0; half < 2; ++half) {
        const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(low[half], _mm512_srai_epi32(high[half], 4)));
        total[half] = _mm512_fmadd_ps(_mm512_mul_ps(dot, scales<type>(tiles, half, 0)), scale, total[half]);
        if constexpr (kHasMinimum<type>) {
          const __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_set1_epi32(sums[0] + sums[1])), scale);
          total[half] = _mm512_fmadd_ps(scales<type>(tiles, half, 1), sum, total[half]);
        }
      }
    } else {
      __m512i dot[2][2];  // [columns 0..15 | 16..31][half]
      for (int part = 0; part < 2; ++part) {
        dot[part][0] = dot[part][1] = _mm512_set1_epi32(-kOffset<type> * sums[part]);
      }
      for (int pair = 0; pair < 4; ++pair) {
        __m512i w[2][2];
        reader.pair(tiles, pair, w);
        for (int i = 0; i < 2; ++i) {
          const __m512i four = broadcast4(quants + 8 * pair + 4 * i);
          for (int half = 0; half < 2; ++half) {
            dot[pair / 2][half] = _mm512_dpbusd_epi32(dot[pair / 2][half], w[i][half], four);
          }
        }
      }
      for (int half = 0; half < 2; ++half) {
        if constexpr (kTwoScales<type>) {
          const __m512 first = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[0][half]), scales<type>(tiles, half, 0));
          const __m512 both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[1][half]), scales<type>(tiles, half, 1), first);
          total[half] = _mm512_fmadd_ps(both, scale, total[half]);
        } else {
          const __m512 both = _mm512_cvtepi32_ps(_mm512_add_epi32(dot[0][half], dot[1][half]));
          total[half] = _mm512_fmadd_ps(_mm512_mul_ps(both, scales<type>(tiles, half, 0)), scale, total[half]);
        }
      }
    }
  }
  _mm512_storeu_ps(out, total[0]);
  _mm512_storeu_ps(out + 16, total[1]);
}

// --- many tokens ----------------------------------------------------------------------------------------------

// Panel: [blocks] x { 16 registers of weights, then f32 scales [sets][32] }.
template <WeightType type>
constexpr int kSets = kTwoScales<type> || kHasMinimum<type> ? 2 : 1;
template <WeightType type>
constexpr int kPanelBlock = 1024 + 128 * kSets<type>;

template <WeightType type>
void expand(const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel) {
  const Reader<type> reader;
  for (std::int64_t block = 0; block < blocks; ++block, tiles += tile_bytes<type>(), panel += kPanelBlock<type>) {
    for (int pair = 0; pair < 4; ++pair) {
      __m512i w[2][2];
      reader.pair(tiles, pair, w);
      for (int i = 0; i < 2; ++i) {
        for (int half = 0; half < 2; ++half) {
          _mm512_store_si512(panel + ((2 * pair + i) * 2 + half) * 64, w[i][half]);
        }
      }
    }
    auto* scale = reinterpret_cast<float*>(panel + 1024);
    for (int set = 0; set < kSets<type>; ++set) {
      for (int half = 0; half < 2; ++half)
        _mm512_store_ps(scale + 32 * set + 16 * half, scales<type>(tiles, half, set));
    }
  }
}

template <WeightType type, int tokens>
void gemm_block(const std::uint8_t* panel, const Activations& a, std::int64_t first, float* out,
                std::int64_t out_stride) {
  const std::int8_t* quants = a.quants_of(first);
  const float* activation_scales = a.scales_of(first);
  const std::int32_t* sums = a.sums_of(first);
  const std::int64_t quant_stride = a.quant_stride;
  const std::int64_t blocks = a.blocks;

  __m512 total[tokens][2];
  for (int t = 0; t < tokens; ++t) total[t][0] = total[t][1] = _mm512_setzero_ps();

  for (std::int64_t block = 0; block < blocks; ++block, panel += kPanelBlock<type>, quants += 32) {
    const auto* scale = reinterpret_cast<const float*>(panel + 1024);
    constexpr int kParts = kTwoScales<type> ? 2 : 1;
    for (int part = 0; part < kParts; ++part) {
      __m512i dot[tokens][2];
      for (int t = 0; t < tokens; ++t) {
        const std::int32_t* s = sums + (t * blocks + block) * 2;
        const std::int32_t sum = kTwoScales<type> ? s[part] : s[0] + s[1];
        dot[t][0] = dot[t][1] = _mm512_set1_epi32(kOffset<type> == 0 ? 0 : -kOffset<type> * sum);
      }
      for (int quad = part * 4; quad < (kTwoScales<type> ? part * 4 + 4 : 8); ++quad) {
        const __m512i w0 = _mm512_load_si512(panel + quad * 128);
        const __m512i w1 = _mm512_load_si512(panel + quad * 128 + 64);
        for (int t = 0; t < tokens; ++t) {
          const __m512i four = broadcast4(quants + t * quant_stride + 4 * quad);
          dot[t][0] = _mm512_dpbusd_epi32(dot[t][0], w0, four);
          dot[t][1] = _mm512_dpbusd_epi32(dot[t][1], w1, four);
        }
      }
      const __m512 scale0 = _mm512_load_ps(scale + 32 * part);
      const __m512 scale1 = _mm512_load_ps(scale + 32 * part + 16);
      for (int t = 0; t < tokens; ++t) {
        const __m512 factor = _mm512_set1_ps(activation_scales[t * blocks + block]);
        total[t][0] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][0]), scale0), factor, total[t][0]);
        total[t][1] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][1]), scale1), factor, total[t][1]);
      }
    }
    if constexpr (kHasMinimum<type>) {
      for (int t = 0; t < tokens; ++t) {
        const std::int32_t* s = sums + (t * blocks + block) * 2;
        const __m512 sum = _mm512_set1_ps(activation_scales[t * blocks + block] * static_cast<float>(s[0] + s[1]));
        total[t][0] = _mm512_fmadd_ps(_mm512_load_ps(scale + 32), sum, total[t][0]);
        total[t][1] = _mm512_fmadd_ps(_mm512_load_ps(scale + 48), sum, total[t][1]);
      }
    }
  }
  for (int t = 0; t < tokens; ++t) {
    _mm512_storeu_ps(out + t * out_stride, total[t][0]);
    _mm512_storeu_ps(out + t * out_stride + 16, total[t][1]);
  }
}

template <WeightType type>
void gemm(const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count, float* out,
          std::int64_t out_stride) {
  while (count >= kTokenBlock) {
    gemm_block<type, kTokenBlock>(panel, a, first, out, out_stride);
    first += kTokenBlock;
    count -= kTokenBlock;
    out += kTokenBlock * out_stride;
  }
  switch (count) {
    case 5:
      gemm_block<type, 5>(panel, a, first, out, out_stride);
      break;
    case 4:
      gemm_block<type, 4>(panel, a, first, out, out_stride);
      break;
    case 3:
      gemm_block<type, 3>(panel, a, first, out, out_stride);
      break;
    case 2:
      gemm_block<type, 2>(panel, a, first, out, out_stride);
      break;
    case 1:
      gemm_block<type, 1>(panel, a, first, out, out_stride);
      break;
    default:
      break;
  }
}

// --- by type --------------------------------------------------------------------------------------------------

template <typename Call>
auto with_type(WeightType type, Call&& call) {
  switch (type) {
    case WeightType::kQ4_0:
      return call.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1:
      return call.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ8_0:
      return call.template operator()<WeightType::kQ8_0>();
    case WeightType::kQ4_K:
      return call.template operator()<WeightType::kQ4_K>();
    case WeightType::kQ6_K:
      return call.template operator()<WeightType::kQ6_K>();
    case WeightType::kIQ4_NL:
      return call.template operator()<WeightType::kIQ4_NL>();
    case WeightType::kMXFP4:
      break;
  }
  return call.template operator()<WeightType::kMXFP4>();
}

void gemv_any(WeightType type, const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  with_type(type, [&]<WeightType t>() { gemv<t>(tiles, a, token, out); });
}

std::size_t panel_bytes_any(WeightType type, std::int64_t blocks) {
  return with_type(type, [&]<WeightType t>() { return static_cast<std::size_t>(blocks) * kPanelBlock<t>; });
}

void expand_any(WeightType type, const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel) {
  with_type(type, [&]<WeightType t>() { expand<t>(tiles, blocks, panel); });
}

void gemm_any(WeightType type, const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count,
              float* out, std::int64_t out_stride) {
  with_type(type, [&]<WeightType t>() { gemm<t>(panel, a, first, count, out, out_stride); });
}

}  // namespace

const KernelSet& avx512_kernels() {
  static constexpr KernelSet set{"avx512-vnni", quantise, gemv_any, panel_bytes_any, expand_any, gemm_any};
  return set;
}

}  // namespace kazeia::tiles
