// What `kazeia why`, `/stats` and --json say of the settings in force.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "run_settings.h"

namespace kazeia::cli {

std::string_view origin_name(Origin origin);  // "built-in", "tuned", "asked"

// {"decode_threads": {"value": "1", "from": "tuned"}, ...}
nlohmann::ordered_json settings_json(const ResolvedSettings& resolved);
// "decode_threads 1 (tuned), kv q8_0 (asked)": those that are not built-in; "built-in" if all are.
std::string settings_line(const ResolvedSettings& resolved);

// A row for each: setting, value, where it comes from.
std::string why_table(std::span<const SettingInForce> settings);
// The whole chain of one, in sentences. `evidence`: what the ledger has of the tuned choice's record, or why it has
// nothing; empty: nothing is said of it.
std::string why_sentences(const SettingInForce& setting, std::string_view evidence);
// An object with everything about each.
nlohmann::ordered_json why_json(std::span<const SettingInForce> settings);

}  // namespace kazeia::cli
