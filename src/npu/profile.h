// What the engine remembers about this machine's NPU between runs: which device it was, what was decided for it, what
// the last self-check found, and how often it failed. One JSON file, readable and writable by its owner only.
//
// A profile never stops the user: a file that is missing or damaged gives the defaults and one line that says so. A
// damaged file is kept beside the new one ("<path>.damaged"); a file of a newer engine is left alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "npu/op_policy.h"

namespace kazeia::npu {

struct DeviceIdentity {
  std::string arch;  // "v79"; "" = unknown

  bool operator==(const DeviceIdentity&) const = default;
};

// What a self-check found, and for whom: it says nothing about another model, engine or upstream version.
struct SelfCheckVerdict {
  bool passed = false;
  std::string finding;  // one line, "" if it passed
  std::string time;     // UTC, "2026-11-30T20:15:00Z"
  std::string engine_version;
  std::string upstream_version;
  std::string model_hash;
};

struct FailureHistory {
  std::uint64_t count = 0;         // ever
  std::uint64_t consecutive = 0;   // since the last good run
  std::uint64_t starts_since = 0;  // that left the device alone after the last failure
  std::string last_reason;
  std::string last_time;  // as SelfCheckVerdict::time
};

struct Profile {
  DeviceIdentity device;
  // Prompt pieces at least this long run on the NPU, shorter ones on the CPU. 1 to 65536. 32 = one tile of rows.
  std::int64_t prefill_min_tokens = 32;
  OpPolicy placement;
  std::optional<SelfCheckVerdict> self_check;
  FailureHistory failures;
};

struct LoadedProfile {
  Profile profile;
  std::string note;  // one line for the user if the file could not be used or kept, else ""
};

// `option` if not empty, else $KAZEIA_PROFILE, else kazeia/profile.json in $XDG_STATE_HOME or $HOME/.local/state.
// "" if none of them is set: then nothing is remembered.
std::string profile_path(const std::string& option);

LoadedProfile read_profile(const std::string& path);
// Reads the file, applies `change`, and replaces the file, with other processes kept out in between. Returns what was
// written, or what would have been: a file that cannot be written is a note, not an error. Others hold the lock for a
// few milliseconds; one that still has it after `patience` hangs, and is not waited for: a count may then be lost.
LoadedProfile update_profile(const std::string& path, const std::function<void(Profile&)>& change,
                             std::chrono::milliseconds patience = std::chrono::seconds(2));
// kWrite; an existing file is then untouched. Makes the folder if it is missing.
Status write_profile(const std::string& path, const Profile& profile);

// Whether this start may use the device.
struct TryDecision {
  bool should_try = true;
  std::string why_not;  // a sentence without its period, "" if it should
};
// After the n-th failure in a row the device is left alone for the next min(2^n - 1, 31) starts, then tried again.
TryDecision should_try(const Profile& profile);

// The three outcomes of a start; at most one of them is recorded: a start that gave the device nothing to do says
// nothing about it. `time` as SelfCheckVerdict::time.
void record_failure(Profile& profile, std::string_view reason, const std::string& time);
void record_skip(Profile& profile);
// A run that used the device to its end. Ends a row of failures only if the last self-check passed.
void record_success(Profile& profile);

void record_self_check(Profile& profile, SelfCheckVerdict verdict);
// Another device than the one remembered has no failures and no verdict yet. An unknown one is no change.
void record_device(Profile& profile, const DeviceIdentity& device);

std::string utc_now();  // "2026-11-30T20:15:00Z"

}  // namespace kazeia::npu
