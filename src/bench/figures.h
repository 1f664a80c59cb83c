// Figures from samples: what a name says about its unit, and ratios of two sides.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/record.h"

namespace kazeia::bench {

// "..._ms", "..._bytes" and "energy_..." (joules a token) are better when they are low, everything else is tokens per
// second. `prefix` stands in front of the name and says whose it is: "upstream_decode_0". Summarised.
Figure make_figure(const std::string& name, std::vector<double> samples, const std::string& prefix = {});

// "plan_weights_bytes": what the memory plan foretold (plan/memory_plan.h), once for each process. Not measured.
inline constexpr std::string_view kPlanPrefix = "plan_";
inline constexpr std::string_view kUpstreamPrefix = "upstream_";  // of the other side of a comparison

// Samples of a by those of b, pair by pair: "ratio_decode_0". Better in the direction in which a is. Summarised.
Figure make_ratio(const std::string& name, const Figure& a, const Figure& b);

// One row of samples for each name, in the order in which the names came up.
class SampleTable {
 public:
  void add(const std::string& name, double value);
  const std::vector<std::pair<std::string, std::vector<double>>>& rows() const { return rows_; }
  // Null if there is none.
  const std::vector<double>* find(const std::string& name) const;

 private:
  std::vector<std::pair<std::string, std::vector<double>>> rows_;
};

}  // namespace kazeia::bench
