// The ledger as a page for people: what was measured, on which machine, and how sure it is.
#pragma once

#include <span>
#include <string>

#include "bench/record.h"

namespace kazeia::bench::report {

// One self-contained HTML page of all `records`, which are in the order of time, at least one. The same records make
// the same page. Absolute figures of two machines never share a chart or a table of figures.
std::string report_page(std::span<const Record> records);

}  // namespace kazeia::bench::report
