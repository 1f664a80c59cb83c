// Reading tiles with NEON: what the dotprod and the i8mm kernels share, private to them.
//
// Everything here is static: the two files are compiled for different instruction sets, and a function that the
// linker may merge would carry i8mm instructions to a machine that has none.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tiles/half.h"
#include "tiles/layout.h"

namespace kazeia::tiles::neon {

// For every lambda on the way to a kernel: arrays of vectors become registers only if the compiler sees through the
// lambda that indexes them from the start.
#define KAZEIA_INLINE __attribute__((always_inline))

// f(integral_constant<int, 0>), ... f(integral_constant<int, N - 1>): a loop whose index is a constant everywhere.
template <int N, typename F>
[[gnu::always_inline]] static inline void unroll(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) KAZEIA_INLINE {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// What the kernels need of the layout table as constants; kernels_test compares every type with the scalar kernels.
template <WeightType T>
struct Traits {
  static constexpr bool kCodebook = T == WeightType::kIQ4_NL || T == WeightType::kMXFP4;
  static constexpr bool kMinimum = T == WeightType::kQ4_1 || T == WeightType::kQ4_K;
  static constexpr int kPhases = T == WeightType::kQ6_K ? 2 : 1;  // scales per row of a tile
  static constexpr int kOffset = T == WeightType::kQ4_0 ? 8 : T == WeightType::kQ6_K ? 32 : 0;
  static constexpr int kScaleOffset = T == WeightType::kQ8_0 ? 1024 : T == WeightType::kQ6_K ? 768 : 512;
  static constexpr int kScaleBytes = T == WeightType::kMXFP4 ? 1 : kMinimum || kPhases == 2 ? 4 : 2;
  static constexpr int kTileBytes = kScaleOffset + 32 * kScaleBytes;
};

// Makes later loads through `p` wait for all of `v` in the compiler's eyes (no instruction is emitted). Without, GCC
// and clang hoist the loads of a whole tile to the top of the loop and spill most; an out-of-order core needs no such
// help.
template <typename V>
[[gnu::always_inline]] static inline void load_after(V (&v)[8], const std::uint8_t*& p) {
  asm("" : "+r"(p), "+w"(v[0]), "+w"(v[1]), "+w"(v[2]), "+w"(v[3]), "+w"(v[4]), "+w"(v[5]), "+w"(v[6]), "+w"(v[7]));
}

// Columns [8 * kGroup, +8) of a tile as eight quads of rows, handed to f(integral_constant<int, quad>, first, second):
// a 32-bit lane holds four columns of one row. In the order of the activations (ColumnOrder), `first` is positions
// 0..3 of the eight and `second` positions 4..7. Q4_0 and Q6_K come without their offset, so unsigned.
template <WeightType T, int kGroup, typename F>
[[gnu::always_inline]] static inline void read_quants(const std::uint8_t*& tile, F&& f) {
  if constexpr (T == WeightType::kQ8_0) {
    // 16 bytes are eight rows of two columns: one interleave of two such vectors makes the lanes.
    unroll<4>([&](auto v) KAZEIA_INLINE {
      const std::uint8_t* p = tile + kGroup * 256 + v * 16;
      const uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(p)), b = vreinterpretq_u16_u8(vld1q_u8(p + 64));
      const uint16x8_t c = vreinterpretq_u16_u8(vld1q_u8(p + 128)), d = vreinterpretq_u16_u8(vld1q_u8(p + 192));
      f(std::integral_constant<int, 2 * v>{}, vreinterpretq_s8_u16(vzip1q_u16(a, b)),
        vreinterpretq_s8_u16(vzip1q_u16(c, d)));
      f(std::integral_constant<int, 2 * v + 1>{}, vreinterpretq_s8_u16(vzip2q_u16(a, b)),
        vreinterpretq_s8_u16(vzip2q_u16(c, d)));
    });
  } else if constexpr (T == WeightType::kQ6_K) {
    // A shift-and-insert joins a nibble with four bits of the high byte in one instruction; two of the four belong to
    // the neighbouring group and are masked away, except where the shift already did.
    const uint8x16_t six_bits = vdupq_n_u8(0x3f);
    unroll<8>([&](auto i) KAZEIA_INLINE {
      const uint8x16_t low = vld1q_u8(tile + kGroup * 128 + i * 16);
      const uint8x16_t high = vld1q_u8(tile + 512 + (kGroup / 2) * 128 + i * 16);
      uint8x16_t first, second;
      if constexpr (kGroup % 2 == 0) {
        second = vandq_u8(vsriq_n_u8(vshlq_n_u8(high, 2), low, 4), six_bits);
        first = vandq_u8(vsliq_n_u8(low, high, 4), six_bits);
      } else {
        second = vsriq_n_u8(vshrq_n_u8(high, 2), low, 4);
        first = vandq_u8(vsriq_n_u8(high, vshlq_n_u8(low, 4), 4), six_bits);
      }
      f(i, vreinterpretq_s8_u8(first), vreinterpretq_s8_u8(second));
    });
  } else {
    // 16 bytes are sixteen rows of one column pair: interleave four of them, then split the nibbles.
    const std::uint8_t* p = tile + kGroup * 128;
    const uint8x16_t a[2] = {vld1q_u8(p), vld1q_u8(p + 16)}, b[2] = {vld1q_u8(p + 32), vld1q_u8(p + 48)};
    const uint8x16_t c[2] = {vld1q_u8(p + 64), vld1q_u8(p + 80)}, d[2] = {vld1q_u8(p + 96), vld1q_u8(p + 112)};
    const int8x16_t codebook = vld1q_s8(T == WeightType::kIQ4_NL ? kIq4nlValues : kMxfp4Values);
    unroll<2>([&](auto half) KAZEIA_INLINE {
      const uint16x8_t ab[2] = {vreinterpretq_u16_u8(vzip1q_u8(a[half], b[half])),
                                vreinterpretq_u16_u8(vzip2q_u8(a[half], b[half]))};
      const uint16x8_t cd[2] = {vreinterpretq_u16_u8(vzip1q_u8(c[half], d[half])),
                                vreinterpretq_u16_u8(vzip2q_u8(c[half], d[half]))};
      unroll<4>([&](auto i) KAZEIA_INLINE {
        const uint8x16_t packed =
            vreinterpretq_u8_u16(i % 2 == 0 ? vzip1q_u16(ab[i / 2], cd[i / 2]) : vzip2q_u16(ab[i / 2], cd[i / 2]));
        const uint8x16_t first = vandq_u8(packed, vdupq_n_u8(0x0f)), second = vshrq_n_u8(packed, 4);
        constexpr std::integral_constant<int, 4 * half + i> kQuad;
        if constexpr (Traits<T>::kCodebook) {
          f(kQuad, vqtbl1q_s8(codebook, first), vqtbl1q_s8(codebook, second));
        } else {
          f(kQuad, vreinterpretq_s8_u8(first), vreinterpretq_s8_u8(second));
        }
      });
    });
  }
}

// The kernel of a type that is known at run time: f(integral_constant<WeightType, T>).
template <typename F>
static inline auto with_type(WeightType type, F&& f) {
  switch (type) {
    case WeightType::kQ4_1:
      return f(std::integral_constant<WeightType, WeightType::kQ4_1>{});
    case WeightType::kQ8_0:
      return f(std::integral_constant<WeightType, WeightType::kQ8_0>{});
    case WeightType::kQ4_K:
      return f(std::integral_constant<WeightType, WeightType::kQ4_K>{});
    case WeightType::kQ6_K:
      return f(std::integral_constant<WeightType, WeightType::kQ6_K>{});
    case WeightType::kIQ4_NL:
      return f(std::integral_constant<WeightType, WeightType::kIQ4_NL>{});
    case WeightType::kMXFP4:
      return f(std::integral_constant<WeightType, WeightType::kMXFP4>{});
    case WeightType::kQ4_0:
      break;
  }
  return f(std::integral_constant<WeightType, WeightType::kQ4_0>{});
}

}  // namespace kazeia::tiles::neon
