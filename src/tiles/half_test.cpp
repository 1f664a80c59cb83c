#include "tiles/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kazeia::tiles {
namespace {

// What the bits of a half mean, by the definition of IEEE 754 binary16.
double meaning_of(std::uint16_t half) {
  const int exponent = (half >> 10) & 31, mantissa = half & 1023;
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, EveryBitPatternReadsAsIeeeSays) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double expected = meaning_of(half);
    const float got = half_to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), expected) << bits;
      ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(Half, EveryNumberSurvivesTheWayToFloatAndBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (std::isnan(meaning_of(half))) continue;
    ASSERT_EQ(float_to_half(half_to_float(half)), half) << bits;
  }
}

TEST(Half, NanStaysNanWithItsSign) {
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0x7fc00000u)), 0x7e00);
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0xff800001u)), 0xfe00);
}

TEST(Half, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const auto below = static_cast<std::uint16_t>(bits);
    const auto above = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((meaning_of(below) + meaning_of(above)) / 2);  // exact in f32
    const std::uint16_t even = bits % 2 == 0 ? below : above;
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), below) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), above) << bits;
    ASSERT_EQ(float_to_half(-middle), even | 0x8000) << bits;
  }
}

TEST(Half, OverflowsToInfinityFromTheMiddleAfterTheLargestNumber) {
  EXPECT_EQ(float_to_half(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(Half, FloatsFarBelowTheSmallestHalfBecomeZeroOfTheirSign) {
  EXPECT_EQ(float_to_half(0x1p-25f), 0x0000);  // a tie with zero
  EXPECT_EQ(float_to_half(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(Half, RandomFloatsGoToTheNearestHalf) {
  std::mt19937 random(20240611);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x477fefffu);
    const std::uint16_t half = float_to_half(value);
    const double error = std::fabs(meaning_of(half) - value);
    if (half > 0) {
      ASSERT_LE(error, std::fabs(meaning_of(static_cast<std::uint16_t>(half - 1)) - value)) << value;
    }
    ASSERT_LE(error, std::fabs(meaning_of(static_cast<std::uint16_t>(half + 1)) - value)) << value;
  }
}

TEST(E8m0, IsHalfOfTheNamedPowerOfTwo) {
  for (int e = 0; e < 256; ++e) {
    ASSERT_EQ(static_cast<double>(e8m0_to_half_float(static_cast<std::uint8_t>(e))), std::ldexp(1.0, e - 128)) << e;
  }
}

}  // namespace
}  // namespace kazeia::tiles
