// One measured process, and what the machine did meanwhile.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/child.h"
#include "bench/moment.h"
#include "bench/record.h"

namespace kazeia::bench {

// How a child is run and the machine is read; a test puts something else in their place.
struct MeasuringSeams {
  std::function<Status(const std::vector<std::string>& command, const ChildEvents& events, const CancelFlag* cancel)>
      run;
  std::function<MachineReading(pid_t child)> read;
  std::function<void(int milliseconds)> sleep;
};
// The real ones. `reader` must outlive them.
MeasuringSeams real_seams(MachineReader& reader);

// Other processes' share of one core while something was measured.
struct Interference {
  double cores = 0;
  std::string during;  // "decode_0"; empty: the whole run
};

struct ChildRun {
  // In the order in which they were told. Where the machine tells its energy, each measured piece of known length has
  // another one behind it: "energy_decode_0", joules a token.
  std::vector<std::pair<std::string, double>> samples;
  std::map<std::string, std::string> facts;
  MachineMoment before;
  // The worst of what was seen while it ran: temperature, throttling; clock and foreign CPU are means.
  MachineMoment during;
  // The most of: the whole run, and every measured piece that took longer than a second.
  Interference worst;
};

// A sample, and the machine at that moment.
using OnSample = std::function<void(const std::string& name, double value, const MachineReading& now)>;

// Errors: those of run_child().
Result<ChildRun> watch_child(const std::vector<std::string>& command, const MeasuringSeams& seams,
                             const CancelFlag* cancel, const OnSample& on_sample = {});

}  // namespace kazeia::bench
