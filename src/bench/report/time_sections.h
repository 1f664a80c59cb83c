// What changes over time: a soak from minute to minute, a figure from commit to commit.
#pragma once

#include <string>

#include "bench/report/groups.h"

namespace kazeia::bench::report {

// HTML. Speed, first token and memory of one soak against its time, each with its slope if the record has it.
std::string soak_section(const Record& record);

// HTML. One small chart for each figure over records that measured the same (alike()), in the order of time; empty for
// fewer than two records.
std::string history_section(const Records& records);

}  // namespace kazeia::bench::report
