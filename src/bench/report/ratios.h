// The "ratio_..." figures of a record as plots: those of which more is better, and those of which less is.
#pragma once

#include <string>

#include "bench/record.h"

namespace kazeia::bench::report {

// HTML; empty if the record has none.
std::string ratio_plots(const Record& record);

}  // namespace kazeia::bench::report
