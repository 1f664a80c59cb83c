#include "bench/statistics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "bench/sample_record.h"

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

TEST(Statistics, TheIntervalOfFewSamplesIsTheirRange) {
  EXPECT_EQ(median_interval({}), Interval());
  EXPECT_EQ(median_interval(std::array{5.0}), (Interval{5, 5}));
  EXPECT_EQ(median_interval(std::array{5.0, 3.0}), (Interval{3, 5}));
  EXPECT_EQ(median_interval(std::array{5.0, 3.0, 4.0}), (Interval{3, 5}));
}

TEST(Statistics, AnIntervalIsTheSameEveryTimeAndHoldsTheMedian) {
  const std::vector<double> samples = noisy_samples(100, 0.02, 12, 7);
  const Interval interval = median_interval(samples);
  EXPECT_EQ(interval, median_interval(samples));
  EXPECT_LT(interval.low, median(samples));
  EXPECT_GT(interval.high, median(samples));
  EXPECT_GT(interval.low, *std::min_element(samples.begin(), samples.end()));
  EXPECT_LT(interval.high, *std::max_element(samples.begin(), samples.end()));
}

TEST(Statistics, OneOutlierDoesNotWidenTheIntervalOfManySamples) {
  std::vector<double> samples = noisy_samples(100, 0.01, 20, 3);
  samples[4] = 1000;
  EXPECT_LT(median_interval(samples).high, 105);
}

// How often the interval of `count` samples holds the value that they scatter around.
int covered_of_400(std::size_t count) {
  int covered = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Interval interval = median_interval(noisy_samples(100, 0.02, count, seed));
    if (interval.low <= 100 && 100 <= interval.high) ++covered;
  }
  return covered;
}

TEST(Statistics, NinetyFiveOfAHundredIntervalsHoldTheTruth) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{8}, std::size_t{12}, std::size_t{25}}) {
    EXPECT_GE(covered_of_400(count), 360) << count;
    EXPECT_LE(covered_of_400(count), 396) << count;
  }
}

TEST(Statistics, TheRangeOfThreeSamplesHoldsItThreeTimesOfFour) {
  EXPECT_NEAR(covered_of_400(3), 300, 30);
}

TEST(Statistics, ADifferenceOfThreePercentIsFoundInNoiseOfOne) {
  int faster = 0;
  int slower = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const std::vector<double> before = noisy_samples(100, 0.01, 12, seed);
    const std::vector<double> more = noisy_samples(103, 0.01, 12, seed + 1000);
    const std::vector<double> less = noisy_samples(97, 0.01, 12, seed + 2000);
    if (difference(ratio_of_medians(more, before)) == Difference::kMore) ++faster;
    if (difference(ratio_of_medians(less, before)) == Difference::kLess) ++slower;
  }
  EXPECT_GE(faster, 95);
  EXPECT_GE(slower, 95);
}

TEST(Statistics, NoDifferenceIsClaimedWhereThereIsNone) {
  for (const double noise : {0.01, 0.04}) {
    int none = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      const std::vector<double> before = noisy_samples(100, noise, 12, seed);
      const std::vector<double> after = noisy_samples(100, noise, 12, seed + 1000);
      if (difference(ratio_of_medians(after, before)) == Difference::kNone) ++none;
    }
    EXPECT_GE(none, 95) << noise;
  }
}

TEST(Statistics, ADifferenceMustBeLargerThanTheLeastThatMatters) {
  EXPECT_EQ(difference({1.02, 1.011, 1.03}), Difference::kMore);
  EXPECT_EQ(difference({1.02, 1.009, 1.03}), Difference::kNone);
  EXPECT_EQ(difference({1.02, 1.009, 1.03}, 0), Difference::kMore);
  EXPECT_EQ(difference({0.98, 0.97, 0.989}), Difference::kLess);
  EXPECT_EQ(difference({0.98, 0.97, 0.991}), Difference::kNone);
  EXPECT_EQ(difference({1, 1, 1}, 0), Difference::kNone);
  EXPECT_EQ(difference({}), Difference::kNone);
}

TEST(Statistics, PairsSeeThroughADriftThatHidesADifference) {
  std::vector<double> before;
  std::vector<double> after;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const double drift = 1 - 0.02 * static_cast<double>(i);
    before.push_back(noisy_samples(100 * drift, 0.005, 1, i + 1)[0]);
    after.push_back(noisy_samples(104 * drift, 0.005, 1, i + 101)[0]);
  }
  EXPECT_EQ(difference(ratio_of_medians(after, before)), Difference::kNone);
  const Ratio pairs = median_of_ratios(after, before);
  EXPECT_EQ(difference(pairs), Difference::kMore);
  EXPECT_NEAR(pairs.median, 1.04, 0.01);
  const Ratio range = paired_ratio(after, before);
  EXPECT_GT(pairs.low, range.low);
  EXPECT_LT(pairs.high, range.high);
}

TEST(Statistics, TheRatioOfFewSamplesReachesFromEndToEnd) {
  const Ratio ratio = ratio_of_medians(std::array{20.0, 22.0, 21.0}, std::array{10.0, 11.0});
  EXPECT_DOUBLE_EQ(ratio.median, 2);
  EXPECT_DOUBLE_EQ(ratio.low, 20.0 / 11);
  EXPECT_DOUBLE_EQ(ratio.high, 22.0 / 10);
}

TEST(Statistics, WhatIsNotPositiveHasNoRatio) {
  EXPECT_DOUBLE_EQ(ratio_of_medians(std::array{1.0, 2.0}, std::array{0.0, 1.0}).median, 0);
  EXPECT_DOUBLE_EQ(ratio_of_medians(std::array{1.0, -2.0}, std::array{1.0, 1.0}).high, 0);
  EXPECT_DOUBLE_EQ(ratio_of_medians({}, std::array{1.0}).low, 0);
}

TEST(Statistics, ASummaryIsWhatTheSamplesSay) {
  Figure figure;
  figure.samples = {9, 10, 11};
  summarise(figure);
  EXPECT_DOUBLE_EQ(figure.median, 10);
  EXPECT_DOUBLE_EQ(figure.low, 9);
  EXPECT_DOUBLE_EQ(figure.high, 11);
  EXPECT_NEAR(figure.variation, 0.1, 1e-12);
}

}  // namespace
}  // namespace kazeia::bench
