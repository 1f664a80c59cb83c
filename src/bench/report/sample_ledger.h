// Made-up ledgers for the tests of `kazeia report`.
#pragma once

#include <vector>

#include "bench/record.h"

namespace kazeia::bench::report {

// Two machines and three models; a baseline with upstream's side, a soak of an hour, routes, a tuning record, a plan, a
// history of commits with a disturbed record and one with changes, and a figure that varied too much. In the order of
// time.
std::vector<Record> sample_ledger();

// One record in which everything that is text tries to get out of its place.
Record hostile_record();

}  // namespace kazeia::bench::report
