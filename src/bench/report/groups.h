// A ledger's records as the page shows them: by machine, by model, and by what can be put into one chart. The records
// have to outlive the groups.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record.h"

namespace kazeia::bench::report {

using Records = std::vector<const Record*>;  // in the order of time

struct ModelGroup {
  std::string anchor;  // of its section
  Records records;     // of one model of one machine, or those without a model; at least one

  const ModelIdentity& model() const { return records.back()->model; }
};

struct MachineGroup {
  std::string anchor;
  Records records;
  std::vector<ModelGroup> models;  // by file name

  const MachineIdentity& machine() const { return records.back()->machine; }
};

// Machines in the order of their first record.
std::vector<MachineGroup> by_machine(std::span<const Record> records);

// Records of one of `kinds` whose kind and settings are the same: those that a check would compare. The group with the
// newest record comes first.
std::vector<Records> alike(const Records& records, std::initializer_list<std::string_view> kinds);

// Records of the kinds "bench" and "baseline" that measured the same; the newest first.
std::vector<Records> configurations(const Records& records);

// The newest accepted one; if none is, the newest. Null if there is none.
const Record* shown(const Records& records);
Records of_kind(const Records& records, std::string_view kind);

// "2 threads, context 4096, KV cache f16, route cpu", as far as they are set.
std::string main_settings(const Record& record);
// All others: "decode_tokens 32, turns none".
std::string other_settings(const Record& record);
std::string setting(const Record& record, const std::string& name);  // "" if it is not set

// The N of a figure "<prefix>N", such as "decode_4096"; negative if it is another one.
double length_in(std::string_view name, std::string_view prefix);

}  // namespace kazeia::bench::report
