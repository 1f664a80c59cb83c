// How a record of `kazeia bench` is told: to people and to scripts.
#pragma once

#include <string>

#include "bench/record.h"

namespace kazeia::cli {

// A table fit for the record's kind: figures, two sides with their ratio, one row a route, or the course of a soak.
std::string bench_text(const bench::Record& record);
// The record on many lines.
std::string bench_json(const bench::Record& record);

}  // namespace kazeia::cli
