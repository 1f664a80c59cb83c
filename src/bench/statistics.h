// Small samples of noisy figures: what may be quoted of them, and when two sets of them differ.
#pragma once

#include <span>
#include <vector>

#include "bench/record.h"

namespace kazeia::bench {

double median(std::span<const double> samples);  // 0 if empty
double mean(std::span<const double> samples);
// Sample standard deviation / mean, as a fraction; 0 for fewer than two samples.
double coefficient_of_variation(std::span<const double> samples);

// A 95 % confidence interval. Samples are taken as independent of each other: one per process or repetition, not one
// per token.
struct Interval {
  double low = 0;
  double high = 0;

  bool operator==(const Interval&) const = default;
};

// The percentile bootstrap needs some samples to draw from: below this many it is too narrow, and the interval is the
// full range of the samples instead. That is the best there is and still covers less than 95 %: 75 % for three samples,
// 50 % for two. One sample has no width at all and says nothing about noise.
inline constexpr std::size_t kFewestResampled = 4;

// Of the median: percentile bootstrap, 2,000 resamples from a fixed seed, so that the same samples have the same
// interval everywhere. Zeros if empty. It covers 93 to 95 % of normal noise, but 87 % for four samples and 88 % for
// seven (docs/ledger_format.md).
Interval median_interval(std::span<const double> samples);

// A against B, measured alternately: one ratio per pair, so that a machine that drifts slows both sides of a pair.
struct Ratio {
  double median = 0;
  double low = 0;
  double high = 0;

  bool operator==(const Ratio&) const = default;
};
// a[i] / b[i]; the shorter list decides how many pairs there are. `low` and `high` are the smallest and the largest
// pair.
Ratio paired_ratio(std::span<const double> a, std::span<const double> b);
// The same pairs, with median_interval() of their ratios.
Ratio median_of_ratios(std::span<const double> a, std::span<const double> b);
// median(a) / median(b) of samples that belong to no pairs, with the bootstrap of both sides; with fewer than
// kFewestResampled on one side, from the ends of both sides' intervals. Zeros if a sample is not positive.
Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b);

enum class Difference { kNone, kLess, kMore };

// A and B differ only if the interval of a/b lies beyond 1 by more than `least`, so that a difference which nobody
// would notice is not claimed however well it was measured. kNone for a ratio of zeros.
inline constexpr double kLeastDifference = 0.01;
Difference difference(const Ratio& ratio, double least = kLeastDifference);

// Fills everything that follows from the samples: median, interval, variation.
void summarise(Figure& figure);

}  // namespace kazeia::bench
