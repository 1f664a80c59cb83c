#include "bench/slope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/statistics.h"

namespace kazeia::bench {
namespace {

// 97.5 % of Student's t distribution with 1, 2, ... degrees of freedom.
double student(std::size_t freedom) {
  constexpr std::array kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
  if (freedom <= kTable.size()) return kTable[freedom - 1];
  // The next term of its expansion about the normal distribution is below 0.5 % from here on.
  return 1.96 + 2.372 / static_cast<double>(freedom) + 2.822 / static_cast<double>(freedom * freedom);
}

}  // namespace

Slope slope(std::span<const double> x, std::span<const double> y) {
  const std::size_t count = std::min(x.size(), y.size());
  if (count < 3) return {};
  x = x.first(count);
  y = y.first(count);
  const double mean_x = mean(x);
  const double mean_y = mean(y);
  double xx = 0, xy = 0;
  for (std::size_t i = 0; i < count; ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  if (xx == 0) return {};
  const double value = xy / xx;
  double residuals = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double off = y[i] - mean_y - value * (x[i] - mean_x);
    residuals += off * off;
  }
  const std::size_t freedom = count - 2;
  const double width = student(freedom) * std::sqrt(residuals / static_cast<double>(freedom) / xx);
  return {value, value - width, value + width};
}

}  // namespace kazeia::bench
