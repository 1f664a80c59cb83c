// How long a run takes, learnt from those that were: so that none is begun that would not be over in time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/search.h"

namespace kazeia::bench {

class MeasuringTime {
 public:
  // `runs` of `configurations`, one each, took so long together.
  void learn(const std::vector<Choices>& configurations, int level, double seconds);
  // One run of each. 0 as long as nothing is known.
  double of(const std::vector<Choices>& configurations, int level) const;

 private:
  double of_defaults(int level) const;

  std::map<int, double> seconds_;     // of one run of the defaults, by level
  std::map<Choices, double> factor_;  // of a configuration that was run alone, in runs of the defaults
};

}  // namespace kazeia::bench
