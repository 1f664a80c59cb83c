#include <arm_neon.h>

#include "attention/lanes.h"
#include "attention/wide.h"

namespace kazeia::attention {
namespace {

struct Lanes {
  using Vector = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kAccumulators = 16;

  static Vector load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Vector a) { vst1q_f32(p, a); }
  static Vector load_half(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static Vector broadcast(float a) { return vdupq_n_f32(a); }
  static Vector add(Vector a, Vector b) { return vaddq_f32(a, b); }
  static Vector multiply(Vector a, Vector b) { return vmulq_f32(a, b); }
  static Vector max(Vector a, Vector b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static void sums(const Vector* a, float* out) {
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3])));
  }
  static Vector nearest(Vector x) { return vrndnq_f32(x); }
  static Vector power_of_two(Vector n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
  static Vector zero_below(Vector x, float limit, Vector value) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, vdupq_n_f32(limit))));
  }
};

}  // namespace

const KernelSet& neon_kernels() {
  static const KernelSet set{"neon", attend<Lanes>, reduce<Lanes>, attend_wide<Lanes>};
  return set;
}

}  // namespace kazeia::attention
