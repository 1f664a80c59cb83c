// Small samples of noisy figures: what may be quoted of them.
#pragma once

#include <span>
#include <vector>

namespace kazeia::bench {

double median(std::span<const double> samples);  // 0 if empty
double mean(std::span<const double> samples);
// Sample standard deviation / mean, as a fraction; 0 for fewer than two samples.
double coefficient_of_variation(std::span<const double> samples);

// A against B, measured alternately: one ratio per pair, so that a machine that drifts slows both sides of a pair.
struct Ratio {
  double median = 0;
  double low = 0;  // smallest and largest pair
  double high = 0;
};
// a[i] / b[i]; the shorter list decides how many pairs there are.
Ratio paired_ratio(std::span<const double> a, std::span<const double> b);

}  // namespace kazeia::bench
