// What the machine has taken from its supply, where it tells.
//
// Processors with an energy counter (RAPL) are read exactly, packages only: what else is in the machine is not in it. A
// device that runs on its battery tells the power of all of it; its energy is that power over time, so it has to be
// asked often enough to see the power change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernel_files.h"

namespace kazeia::bench {

class EnergyMeter {
 public:
  explicit EnergyMeter(const KernelFiles& files);

  // Joules since the meter was made; `seconds` is the time now, on any clock, and never goes back. nullopt if the
  // machine does not tell, or if it was put on a charger meanwhile: then it stays so.
  std::optional<double> joules(double seconds);

 private:
  struct Counter {
    std::string path;
    double last_uj = 0;
    double range_uj = 0;  // where it begins again at 0; 0 = never seen
  };
  std::optional<double> battery_watts() const;

  KernelFiles files_;
  std::vector<Counter> counters_;
  std::vector<std::string> batteries_;
  double joules_ = 0;
  std::optional<double> last_watts_;
  double last_seconds_ = 0;
  bool readable_ = true;
};

}  // namespace kazeia::bench
