// GCC 12's own intrinsics start from an undefined register and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <immintrin.h>

#include "attention/lanes.h"

namespace kazeia::attention {
namespace {

struct Lanes {
  using Vector = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kAccumulators = 16;

  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector a) { _mm512_storeu_ps(p, a); }
  static Vector load_half(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Vector broadcast(float a) { return _mm512_set1_ps(a); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static __m256 folded(Vector a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
  static void sums(const Vector* a, float* out) {
    const __m256 both =
        _mm256_hadd_ps(_mm256_hadd_ps(folded(a[0]), folded(a[1])), _mm256_hadd_ps(folded(a[2]), folded(a[3])));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1)));
  }
  static Vector nearest(Vector x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Vector power_of_two(Vector n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static Vector zero_below(Vector x, float limit, Vector value) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), value);
  }
};

}  // namespace

const KernelSet& avx512_kernels() {
  static const KernelSet set{"avx512", attend<Lanes>, reduce<Lanes>};
  return set;
}

}  // namespace kazeia::attention
