// For any machine: four floats that the compiler may keep in a vector of its own choice.
#include <bit>

#include "attention/lanes.h"
#include "attention/wide.h"
#include "tiles/half.h"

namespace kazeia::attention {
namespace {

struct Four {
  float lane[4];
};

template <typename F>
[[gnu::always_inline]] inline Four each(F&& f) {
  return {{f(0), f(1), f(2), f(3)}};
}

struct Lanes {
  using Vector = Four;
  static constexpr int kLanes = 4;
  static constexpr int kAccumulators = 8;

  static Vector load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, Vector a) {
    for (int i = 0; i < 4; ++i) p[i] = a.lane[i];
  }
  static Vector load_half(const std::uint16_t* p) {
    return each([&](int i) { return tiles::half_to_float(p[i]); });
  }
  static Vector broadcast(float a) {
    return each([&](int) { return a; });
  }
  static Vector add(Vector a, Vector b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Vector multiply(Vector a, Vector b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Vector max(Vector a, Vector b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Vector fma(Vector a, Vector b, Vector c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static void sums(const Vector* a, float* out) {
    for (int i = 0; i < 4; ++i) out[i] = (a[i].lane[0] + a[i].lane[1]) + (a[i].lane[2] + a[i].lane[3]);
  }
  // Of magnitudes below 2^22, by where a float of 1.5 * 2^23 ends.
  static Vector nearest(Vector x) {
    return each([&](int i) { return (x.lane[i] + 0x1.8p23f) - 0x1.8p23f; });
  }
  static Vector power_of_two(Vector n) {
    return each([&](int i) {
      const std::int32_t whole = n.lane[i] >= -126 && n.lane[i] <= 0 ? static_cast<std::int32_t>(n.lane[i]) : 0;
      return std::bit_cast<float>((whole + 127) << 23);
    });
  }
  static Vector zero_below(Vector x, float limit, Vector value) {
    return each([&](int i) { return x.lane[i] < limit ? 0.0f : value.lane[i]; });
  }
};

}  // namespace

const KernelSet& scalar_kernels() {
  static const KernelSet set{"scalar", attend<Lanes>, reduce<Lanes>, attend_wide<Lanes>};
  return set;
}

}  // namespace kazeia::attention
