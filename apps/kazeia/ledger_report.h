// What `kazeia ledger` prints: tables for people, JSON for programs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/comparison.h"
#include "bench/record.h"

namespace kazeia::cli {

std::string list_text(std::span<const bench::Record> records);
std::string list_json(std::span<const bench::Record> records);  // summaries, without figures and moments

std::string record_text(const bench::Record& record);

std::string comparison_text(const bench::Comparison& comparison);
std::string comparison_json(const bench::Comparison& comparison);

// Of a check; without a reference `comparison` is empty.
std::string check_json(const bench::Record& now, const std::optional<bench::Comparison>& comparison, double tolerance);

}  // namespace kazeia::cli
