#include <immintrin.h>

#include "attention/lanes.h"
#include "attention/wide.h"

namespace kazeia::attention {
namespace {

struct Lanes {
  using Vector = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kAccumulators = 8;

  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector a) { _mm256_storeu_ps(p, a); }
  static Vector load_half(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Vector broadcast(float a) { return _mm256_set1_ps(a); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static void sums(const Vector* a, float* out) {
    const __m256 both = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1)));
  }
  static Vector nearest(Vector x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Vector power_of_two(Vector n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static Vector zero_below(Vector x, float limit, Vector value) {
    return _mm256_and_ps(value, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ));
  }
};

}  // namespace

const KernelSet& avx2_kernels() {
  static const KernelSet set{"avx2", attend<Lanes>, reduce<Lanes>, attend_wide<Lanes>};
  return set;
}

}  // namespace kazeia::attention
