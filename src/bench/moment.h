// What the machine is doing: read often while something is measured, so that the figures can be judged afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/energy.h"
#include "bench/kernel_files.h"
#include "bench/record.h"

namespace kazeia::bench {

// Counters as they stand; two of them tell what happened in between. What the machine does not tell is 0.
struct MachineReading {
  double seconds = 0;  // since the reader was made
  // CPU time of everybody, over all cores. What a host took from its virtual machine is in it: who waits for another
  // machine is disturbed as much as who waits for another process.
  double busy_s = 0;
  double own_s = 0;  // of it, of this process, its ended children and the child that was named
  double load_average = 0;
  double temperature_c = 0;  // the hottest sensor of the processor
  double clock_mhz = 0;      // mean over the cores
  std::uint64_t free_memory_bytes = 0;
  std::uint64_t throttle_events = 0;  // since the machine started
  bool cooling = false;               // the processor's clock is held down for heat
  std::optional<double> joules;       // since the reader was made
};

class MachineReader {
 public:
  // `root` is where proc/ and sys/ are.
  explicit MachineReader(std::string root = "/");

  // Takes about a millisecond. `child`: a child process that still runs, 0 = none.
  MachineReading read(int child = 0);

 private:
  double cpu_seconds(const std::string& path, bool with_children) const;

  KernelFiles files_;
  EnergyMeter energy_;
  Stopwatch since_start_;
  double ticks_per_second_;
  std::vector<std::string> clocks_;        // in kHz
  std::vector<std::string> temperatures_;  // in thousandths of a degree
  std::vector<std::string> throttle_counts_;
  std::vector<std::string> cooling_states_;
};

// The later moment, with what happened since the earlier one.
MachineMoment moment_between(const MachineReading& before, const MachineReading& after);

}  // namespace kazeia::bench
