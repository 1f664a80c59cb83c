// The scales of a tile as NEON vectors of floats; private to the dotprod and i8mm kernels, static for the reason given
// in neon.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "tiles/neon.h"

namespace kazeia::tiles::neon {

struct RowScales {
  float32x4_t scale[2];    // of rows 0..3 and 4..7
  float32x4_t minimum[2];  // zero for types without one
};

// Scales of rows [8 * kOctet, +8); kPhase: columns [16 * kPhase, +16) of a type with two scales.
template <WeightType T, int kOctet, int kPhase>
[[gnu::always_inline]] static inline RowScales read_scales(const std::uint8_t* tile) {
  RowScales out{{vdupq_n_f32(0), vdupq_n_f32(0)}, {vdupq_n_f32(0), vdupq_n_f32(0)}};
  const std::uint8_t* p = tile + Traits<T>::kScaleOffset;
  if constexpr (T == WeightType::kMXFP4) {
    // The upper half of the float 2^(e - 128): (e - 1) << 7, or a subnormal for e = 0 and 1.
    const uint8x8_t e = vld1_u8(p + kOctet * 8);
    const int16x8_t normal = vsubq_s16(vreinterpretq_s16_u16(vshll_n_u8(e, 7)), vdupq_n_s16(0x80));
    const uint8x8_t subnormal = vshl_u8(vdup_n_u8(0x20), vreinterpret_s8_u8(vmin_u8(e, vdup_n_u8(2))));
    const int16x8_t bits = vmaxq_s16(normal, vreinterpretq_s16_u16(vmovl_u8(subnormal)));
    out.scale[0] = vreinterpretq_f32_s32(vshll_n_s16(vget_low_s16(bits), 16));
    out.scale[1] = vreinterpretq_f32_s32(vshll_high_n_s16(bits, 16));
  } else if constexpr (Traits<T>::kMinimum) {
    const uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(p + kOctet * 32));
    const uint16x8_t b = vreinterpretq_u16_u8(vld1q_u8(p + kOctet * 32 + 16));
    const float16x8_t scales = vreinterpretq_f16_u16(vuzp1q_u16(a, b));
    const float16x8_t minimums = vreinterpretq_f16_u16(vuzp2q_u16(a, b));
    out.scale[0] = vcvt_f32_f16(vget_low_f16(scales));
    out.scale[1] = vcvt_high_f32_f16(scales);
    out.minimum[0] = vcvt_f32_f16(vget_low_f16(minimums));
    out.minimum[1] = vcvt_high_f32_f16(minimums);
  } else {
    const float16x8_t scales = vreinterpretq_f16_u8(vld1q_u8(p + kPhase * 64 + kOctet * 16));
    out.scale[0] = vcvt_f32_f16(vget_low_f16(scales));
    out.scale[1] = vcvt_high_f32_f16(scales);
  }
  return out;
}

}  // namespace kazeia::tiles::neon
