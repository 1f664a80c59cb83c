// Where values stand on a chart, and which of them are written beside it. Every finite number is welcome: a record may
// hold any.
#pragma once

#include <string>
#include <vector>

namespace kazeia::bench::report {

class Axis {
 public:
  // From at most `least` to at least `most`, with ends and ticks on round numbers: about `wanted` steps of 1, 2 or 5
  // times a power of ten. A span of nothing is widened.
  static Axis linear(double least, double most, int wanted);
  // From `low` to `high` as they are, without ticks.
  static Axis exact(double low, double high);
  // For lengths in tokens: 0 has a place, and from some hundreds on every doubling is equally wide. Its ticks are
  // `values`.
  static Axis lengths(std::vector<double> values);
  // For ratios: as far to the left as half as to the right as double; 1 is on it. Ratios that are not above zero have
  // no place and are left out. Ticks are round factors.
  static Axis ratios(const std::vector<double>& values);

  double share(double value) const;  // 0 at the low end, 1 at the high end, nothing beyond
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }
  std::string tick_text(double tick) const;

 private:
  enum class Scale { kLinear, kLengths, kRatios };
  double place(double value) const;

  Scale scale_ = Scale::kLinear;
  double low_ = 0;
  double high_ = 1;
  double step_ = 1;
  std::vector<double> ticks_;
};

}  // namespace kazeia::bench::report
