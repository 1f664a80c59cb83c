// How many threads a model should run on, from what the machine is. A pure decision: base/machine.h reads
// the facts, this file reads nothing.
#pragma once

#include <span>
#include <string>

#include "base/machine.h"

namespace kazeia::plan {

struct ThreadPlan {
  int threads = 1;
  std::string reason;  // one phrase, as `doctor` prints it: "8 of 8 performance cores"
};

// One thread per physical performance core that this process may use, and no more than the container's CPU
// quota. Hardware threads of one core share its multipliers, and every step of a model ends in a barrier that
// waits for the slowest core, so siblings and efficiency cores cost more than they bring.
//
// On an SM8750 that is 2 prime + 6 performance cores = 8. Users report 6 as the best there; that is a matter of
// heat and memory bandwidth, not of core classes, so it is left to a measurement on the device.
ThreadPlan default_thread_plan(const MachineFacts& machine);
int default_threads(const MachineFacts& machine);
// On these CPUs alone; empty: all that the process may use.
int default_threads(const MachineFacts& machine, std::span<const int> cores);

}  // namespace kazeia::plan
