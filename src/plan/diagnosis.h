// What about a machine will make a model slow or impossible, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "base/machine.h"

namespace kazeia::plan {

struct Problem {
  std::string name;      // stable, for --json: "little_memory", "no_vector_instructions", ...
  std::string sentence;  // what is wrong, with the figure that shows it
  std::string next;      // what to do
};

enum class Processor { kX86, kArm, kOther };
// The one this program was compiled for.
Processor this_processor();

// The worst first; empty if nothing is wrong. Facts that are unknown are no problem.
std::vector<Problem> diagnose(const MachineFacts& machine, Processor processor = this_processor());

}  // namespace kazeia::plan
