#include "engine/agreement.h"

#include <cassert>
#include <cmath>

#include <fmt/format.h>

namespace kazeia {
namespace {

double mean(std::span<const float> row) {
  double sum = 0;
  for (const float value : row) sum += static_cast<double>(value);
  return sum / static_cast<double>(row.size());
}

}  // namespace

double agreement(std::span<const float> a, std::span<const float> b) {
  assert(a.size() == b.size());
  const double mean_a = mean(a);
  const double mean_b = mean(b);
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) - mean_a;
    const double y = static_cast<double>(b[i]) - mean_b;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  const double cosine = ab / std::sqrt(aa * bb);
  return std::isfinite(cosine) ? cosine : -1.0;
}

std::string wrong_results(double agreement) {
  return fmt::format("its results are wrong (agreement {:.3f} with the CPU)", agreement);
}

}  // namespace kazeia
