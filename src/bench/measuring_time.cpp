#include "bench/measuring_time.h"

#include <algorithm>

namespace kazeia::bench {

void MeasuringTime::learn(const std::vector<Choices>& configurations, int level, double seconds) {
  if (configurations.empty()) return;
  if (configurations.size() == 1 && !configurations.front().empty()) {
    const double usual = of_defaults(level);
    double& factor = factor_[configurations.front()];
    if (usual > 0) factor = std::max({factor, seconds / usual, 1.0});
    return;
  }
  double runs = 0;
  for (const Choices& choices : configurations) {
    const auto known = factor_.find(choices);
    runs += known == factor_.end() ? 1 : known->second;
  }
  // The longest so far: a run that had to wait for a quiet machine may have to again.
  double& usual = seconds_[level];
  usual = std::max(usual, seconds / runs);
}

double MeasuringTime::of(const std::vector<Choices>& configurations, int level) const {
  const double usual = of_defaults(level);
  double sum = 0;
  for (const Choices& choices : configurations) {
    double factor = 1;
    // What was slow alone is slow beside others, too.
    for (const auto& [alone, seen] : factor_) {
      const bool within = std::all_of(alone.begin(), alone.end(), [&](const auto& choice) {
        const auto found = choices.find(choice.first);
        return found != choices.end() && found->second == choice.second;
      });
      if (within) factor = std::max(factor, seen);
    }
    sum += usual * factor;
  }
  return sum;
}

double MeasuringTime::of_defaults(int level) const {
  if (const auto known = seconds_.find(level); known != seconds_.end()) return known->second;
  const auto proof = seconds_.find(kProofLevel);
  const double most = proof == seconds_.end() ? 0 : proof->second;
  // A level is twice the work of the one before, and none is more than a proof.
  if (const auto before = seconds_.find(level - 1); before != seconds_.end()) {
    return most > 0 ? std::min(most, 2 * before->second) : 2 * before->second;
  }
  return most;
}

}  // namespace kazeia::bench
