// One configuration of a model on a machine: speed by depth and by length, the first token, memory, and ratios to
// upstream.
#pragma once

#include <string>

#include "bench/report/groups.h"

namespace kazeia::bench::report {

// HTML. `configuration`: one of configurations(). Shown are the newest accepted record and, beside it, upstream's side
// of the newest accepted baseline; what is newer and was not accepted is named.
std::string speed_section(const Records& configuration);

}  // namespace kazeia::bench::report
