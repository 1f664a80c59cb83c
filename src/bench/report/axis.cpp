#include "bench/report/axis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "bench/report/markup.h"

namespace kazeia::bench::report {
namespace {

constexpr double kMost = 1e100;       // differences and squares of such numbers are numbers still
constexpr double kLeastSpan = 1e-3;   // of the larger end, so that steps are not lost in rounding
constexpr double kLengthUnit = 512;   // tokens from which on doublings are equally wide
constexpr double kLeastRatio = 1e-3;  // both ends of what a plot of ratios shows
constexpr double kLongestTickList = 12;

double round_step(double raw) {
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Axis Axis::linear(double least, double most, int wanted) {
  least = std::clamp(least, -kMost, kMost);
  most = std::clamp(most, least, kMost);
  double span = std::max(most - least, kLeastSpan * std::max(std::fabs(least), std::fabs(most)));
  if (!(span > 1 / kMost)) span = 1;
  Axis axis;
  axis.step_ = round_step(span / std::max(wanted, 1));
  axis.low_ = std::floor(least / axis.step_ + 1e-9) * axis.step_;
  axis.high_ = std::ceil(std::max(most, least + span) / axis.step_ - 1e-9) * axis.step_;
  const double count = std::min(std::round((axis.high_ - axis.low_) / axis.step_), kLongestTickList);
  for (int i = 0; i <= static_cast<int>(count); ++i) axis.ticks_.push_back(axis.low_ + i * axis.step_);
  return axis;
}

Axis Axis::exact(double low, double high) {
  Axis axis;
  axis.low_ = low;
  axis.high_ = high;
  return axis;
}

Axis Axis::lengths(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  Axis axis;
  axis.scale_ = Scale::kLengths;
  if (values.empty()) return axis;
  axis.low_ = values.front();
  axis.high_ = values.back();
  axis.ticks_ = std::move(values);
  return axis;
}

Axis Axis::ratios(const std::vector<double>& values) {
  constexpr std::array kFactors{0.001, 0.01, 0.1, 0.2, 0.5, 0.8,  0.9,   1.0,   1.1,
                                1.25,  1.5,  2.0, 3.0, 5.0, 10.0, 100.0, 1000.0};
  Axis axis;
  axis.scale_ = Scale::kRatios;
  double least = 1;
  double most = 1;
  for (const double value : values) {
    if (!(value > 0)) continue;
    least = std::min(least, std::max(value, kLeastRatio));
    most = std::max(most, std::min(value, 1 / kLeastRatio));
  }
  // Some air at both ends, and never so narrow that nothing looks like something.
  axis.low_ = std::min(least / 1.03, 0.9);
  axis.high_ = std::max(most * 1.03, 1.1);
  std::copy_if(kFactors.begin(), kFactors.end(), std::back_inserter(axis.ticks_),
               [&](double factor) { return factor >= axis.low_ && factor <= axis.high_; });
  return axis;
}

double Axis::place(double value) const {
  switch (scale_) {
    case Scale::kLinear:
      return value;
    case Scale::kLengths:
      return std::log2(1 + std::max(value, 0.0) / kLengthUnit);
    case Scale::kRatios:
      return std::log2(std::max(value, kLeastRatio / 2));
  }
  return value;
}

double Axis::share(double value) const {
  const double width = place(high_) - place(low_);
  if (!(width > 0)) return 0.5;
  return std::clamp((place(value) - place(low_)) / width, 0.0, 1.0);
}

std::string Axis::tick_text(double tick) const {
  constexpr int kMostDecimals = 6;
  if (scale_ != Scale::kLinear) return number_text(tick);
  const double decimals = std::ceil(-std::log10(step_) - 1e-9);
  if (std::fabs(tick) >= 1e7 || decimals > kMostDecimals) return fmt::format("{:.3g}", tick);
  // Rounding can leave a zero that is none.
  const double shown = std::fabs(tick) < step_ / 2 ? 0 : tick;
  return fmt::format("{:.{}f}", shown, std::max(0, static_cast<int>(decimals)));
}

}  // namespace kazeia::bench::report
