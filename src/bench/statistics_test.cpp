#include "bench/statistics.h"

#include <array>

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_DOUBLE_EQ(median(std::array{3.0, 1.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(median(std::array{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(median({}), 0.0);
}

TEST(Statistics, VariationIsTheSampleDeviationOverTheMean) {
  EXPECT_NEAR(coefficient_of_variation(std::array{9.0, 10.0, 11.0}), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(coefficient_of_variation(std::array{5.0}), 0.0);
}

TEST(Statistics, PairedRatiosForgetADriftThatBothSidesShare) {
  const std::array fast{20.0, 10.0, 5.0};
  const std::array slow{10.0, 5.0, 2.5};
  const Ratio ratio = paired_ratio(fast, slow);
  EXPECT_DOUBLE_EQ(ratio.median, 2.0);
  EXPECT_DOUBLE_EQ(ratio.low, 2.0);
  EXPECT_DOUBLE_EQ(ratio.high, 2.0);
}

TEST(Statistics, RatiosWithoutAPairAreZero) {
  EXPECT_DOUBLE_EQ(paired_ratio(std::array{1.0}, {}).median, 0.0);
}

}  // namespace
}  // namespace kazeia::bench
