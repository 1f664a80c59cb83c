#include "bench/slope.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

TEST(Slope, OfALineIsExact) {
  const Slope line = slope(std::array{0.0, 1.0, 2.0, 3.0}, std::array{5.0, 7.0, 9.0, 11.0});
  EXPECT_DOUBLE_EQ(line.value, 2);
  EXPECT_NEAR(line.low, 2, 1e-9);
  EXPECT_NEAR(line.high, 2, 1e-9);
}

TEST(Slope, HasTheIntervalOfTheTextbook) {
  // Sxx = 10, Sxy = 6, residuals 2.4, 3 degrees of freedom: 0.6 +- 3.182 * sqrt(0.8 / 10).
  const Slope fit = slope(std::array{1.0, 2.0, 3.0, 4.0, 5.0}, std::array{2.0, 4.0, 5.0, 4.0, 5.0});
  EXPECT_NEAR(fit.value, 0.6, 1e-9);
  EXPECT_NEAR(fit.low, 0.6 - 0.9, 1e-3);
  EXPECT_NEAR(fit.high, 0.6 + 0.9, 1e-3);
}

TEST(Slope, OfNoiseAroundAConstantContainsZero) {
  std::vector<double> x, y;
  for (int i = 0; i < 60; ++i) {
    x.push_back(i);
    y.push_back(10 + ((i * 7919) % 11 - 5) * 0.1);
  }
  const Slope flat = slope(x, y);
  EXPECT_LT(flat.low, 0);
  EXPECT_GT(flat.high, 0);
}

TEST(Slope, OfTooFewPointsIsNotClaimed) {
  EXPECT_EQ(slope(std::array{0.0, 1.0}, std::array{1.0, 9.0}).value, 0);
  EXPECT_EQ(slope(std::array{2.0, 2.0, 2.0}, std::array{1.0, 9.0, 4.0}).value, 0);
}

}  // namespace
}  // namespace kazeia::bench
