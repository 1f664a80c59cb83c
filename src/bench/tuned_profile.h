// What `kazeia tune` found for one model on one machine: choices that beat the built-in defaults, each with the record
// that proves it. One JSON file per machine and model, readable and writable by its owner only (0600, folder 0700).
//
// A profile never stops the user: one that is missing is none, one that is damaged, of a newer engine, or of another
// machine or model is none and one line that says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/statistics.h"

namespace kazeia::bench {

struct TunedChoice {
  std::string setting{};  // plan::Setting::name
  std::string value{};    // as text: "1", "off"
  std::string instead{};  // the built-in default's value at that time
  std::string record{};   // id of the record of kind "tune" that compared the two, 12 hex digits
  std::string figure{};   // in which it won: "decode_1024"
  Ratio gain{};           // above 1 is better; the interval excludes 1

  bool operator==(const TunedChoice&) const = default;
};

struct TunedProfile {
  std::string machine_id{};  // bench/identity.h
  std::string model_hash{};  // Model::content_hash()
  std::string engine_version{};
  std::string upstream_version{};
  std::string time{};                  // UTC, as in records
  std::vector<TunedChoice> choices{};  // at most one per setting

  const TunedChoice* find(std::string_view setting) const;  // null if there is none
};

// $KAZEIA_TUNED, else kazeia/tuned in $XDG_STATE_HOME or $HOME/.local/state; "" if none of them is set.
std::string tuned_folder();
// "<folder>/<machine id>-<model hash>.json"
std::string tuned_path(const std::string& folder, const std::string& machine_id, const std::string& model_hash);

struct LoadedTunedProfile {
  std::optional<TunedProfile> profile;
  std::string note;  // one sentence without its period if there is a file that cannot be used, else ""
};
// Choices whose setting this engine does not know are left out, with a note.
LoadedTunedProfile read_tuned(const std::string& folder, const std::string& machine_id, const std::string& model_hash);
// Whether write_tuned() could write there now; makes the folder. For work that takes minutes before it writes. kWrite.
Status check_tuned_folder(const std::string& folder);
// Atomic: an existing file is replaced or untouched. kWrite.
Status write_tuned(const std::string& folder, const TunedProfile& profile);

}  // namespace kazeia::bench
