// Whether something rises or falls over time, and how sure that is.
#pragma once

#include <span>

namespace kazeia::bench {

// Least squares through (x, y); the interval is that of the slope, 95 %, for deviations that are independent of each
// other. Zeros for fewer than three points, or if all x are the same: two points have a slope but no interval.
struct Slope {
  double value = 0;  // y per x
  double low = 0;
  double high = 0;
};
Slope slope(std::span<const double> x, std::span<const double> y);

}  // namespace kazeia::bench
