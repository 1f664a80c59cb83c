#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kazeia::bench {

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double mean(std::span<const double> samples) {
  if (samples.empty()) return 0;
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double coefficient_of_variation(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double average = mean(samples);
  if (average == 0) return 0;
  double squares = 0;
  for (const double sample : samples) squares += (sample - average) * (sample - average);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1)) / std::fabs(average);
}

Ratio paired_ratio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (b[i] != 0) ratios.push_back(a[i] / b[i]);
  }
  if (ratios.empty()) return {};
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {median(ratios), *low, *high};
}

}  // namespace kazeia::bench
