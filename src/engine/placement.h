// Where weights live and which processor runs a graph. The seam behind which the NPU plugs in: a model is
// loaded for one placement, and everything above the engine is the same for all of them.
#pragma once

#include <string_view>

namespace kazeia {

enum class Placement {
  kCpu,  // weights, prefill and decode on the CPU
};

std::string_view placement_name(Placement placement);  // as --json prints it

}  // namespace kazeia
