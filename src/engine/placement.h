// Where weights live and which processor runs a graph. The seam behind which the NPU plugs in: a model is
// loaded for one placement, and everything above the engine is the same for all of them.
#pragma once

#include <string_view>

struct llama_model_params;

namespace kazeia {

enum class Placement {
  kCpu,       // weights in tiles where they have a tile layout; prefill and decode on the CPU
  kNpu,       // weights in tiles in the NPU's memory, read by both processors; tables and head stay with the CPU
  kUpstream,  // upstream's own CPU layouts, for comparisons and as the way out if a tile kernel is in doubt
};

std::string_view placement_name(Placement placement);  // as --json prints it

// For model.cpp: how upstream loads a model for this placement. The one place where its load parameters are
// chosen; the caller adds only its progress callback. Pointers in it refer to static data. kNpu: the device must have
// been opened.
llama_model_params load_parameters(Placement placement);

}  // namespace kazeia
