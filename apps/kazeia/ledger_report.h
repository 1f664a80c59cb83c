// What `kazeia ledger` prints: tables for people, JSON for programs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/comparison.h"
#include "bench/record.h"

namespace kazeia::cli {

// "0123456789ab is in the ledger of the machine 1a2b3c4d.", or what it is kept as instead of as a result.
std::string added_text(const bench::Record& record);

std::string list_text(std::span<const bench::Record> records);
std::string list_json(std::span<const bench::Record> records);  // summaries, without figures and moments

std::string record_text(const bench::Record& record);

std::string comparison_text(const bench::Comparison& comparison);
std::string comparison_json(const bench::Comparison& comparison);

struct CheckedRecord {
  bench::Record now;
  std::optional<bench::Comparison> comparison{};  // with its reference, if there is one and something was compared
  std::string failure{};  // empty: it passes; otherwise as in "worse than 0123456789ab of ...: decode_0 by 10.0 %"
};
std::string check_text(std::span<const CheckedRecord> checked);
// An object, or with more than one record an array of them.
std::string check_json(std::span<const CheckedRecord> checked, double tolerance);

}  // namespace kazeia::cli
