#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>

namespace kazeia::bench {
namespace {

constexpr std::size_t kResamples = 2000;
constexpr std::size_t kCutOff = kResamples / 40;  // 2.5 % at each end
constexpr std::uint64_t kSeed = 20240229;

// Medians of resamples. The places are drawn without the library's distributions, which differ between libraries.
class Resampler {
 public:
  double median_of(std::span<const double> samples) {
    drawn_.resize(samples.size());
    for (double& value : drawn_) value = samples[((random_() >> 32) * samples.size()) >> 32];
    const auto middle = drawn_.begin() + static_cast<std::ptrdiff_t>(drawn_.size() / 2);
    std::nth_element(drawn_.begin(), middle, drawn_.end());
    if (drawn_.size() % 2 == 1) return *middle;
    return (*std::max_element(drawn_.begin(), middle) + *middle) / 2;
  }

 private:
  std::mt19937_64 random_{kSeed};
  std::vector<double> drawn_;
};

Interval middle_95(std::vector<double> resamples) {
  std::sort(resamples.begin(), resamples.end());
  return {resamples[kCutOff - 1], resamples[resamples.size() - kCutOff]};
}

std::vector<double> pairs(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (b[i] != 0) ratios.push_back(a[i] / b[i]);
  }
  return ratios;
}

bool all_positive(std::span<const double> samples) {
  return std::all_of(samples.begin(), samples.end(), [](double sample) { return sample > 0; });
}

}  // namespace

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

Interval median_interval(std::span<const double> samples) {
  if (samples.empty()) return {};
  if (samples.size() < kFewestResampled) {
    const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
    return {*low, *high};
  }
  Resampler resampler;
  std::vector<double> medians(kResamples);
  for (double& value : medians) value = resampler.median_of(samples);
  return middle_95(std::move(medians));
}

Ratio paired_ratio(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> ratios = pairs(a, b);
  if (ratios.empty()) return {};
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {median(ratios), *low, *high};
}

Ratio median_of_ratios(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> ratios = pairs(a, b);
  const Interval interval = median_interval(ratios);
  return {median(ratios), interval.low, interval.high};
}

Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty() || !all_positive(a) || !all_positive(b)) return {};
  const double ratio = median(a) / median(b);
  if (std::min(a.size(), b.size()) < kFewestResampled) {
    const Interval of_a = median_interval(a);
    const Interval of_b = median_interval(b);
    return {ratio, of_a.low / of_b.high, of_a.high / of_b.low};
  }
  // One stream for both sides: with one each, from the same seed, both would draw the same places.
  Resampler resampler;
  std::vector<double> ratios(kResamples);
  for (double& value : ratios) {
    const double above = resampler.median_of(a);
    value = above / resampler.median_of(b);
  }
  const Interval interval = middle_95(std::move(ratios));
  return {ratio, interval.low, interval.high};
}

Difference difference(const Ratio& ratio, double least) {
  if (ratio.low > 1 + least) return Difference::kMore;
  if (ratio.median > 0 && ratio.high < 1 - least) return Difference::kLess;
  return Difference::kNone;
}

void summarise(Figure& figure) {
  const Interval interval = median_interval(figure.samples);
  figure.median = median(figure.samples);
  figure.low = interval.low;
  figure.high = interval.high;
  figure.variation = coefficient_of_variation(figure.samples);
}

}  // namespace kazeia::bench
