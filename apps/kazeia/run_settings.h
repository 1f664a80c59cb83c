// The settings a model runs with, and where each came from: the built-in default, the tuned profile, or the user.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/tuned_profile.h"
#include "options.h"
#include "plan/settings.h"

namespace kazeia::cli {

enum class Origin { kBuiltIn, kTuned, kAsked };

struct SettingInForce {
  const plan::Setting* setting = nullptr;
  std::string value;  // as text, resolved: "2", not "physical performance cores"
  Origin origin = Origin::kBuiltIn;
  std::optional<bench::TunedChoice> tuned;  // of kTuned; of kAsked, what was overruled
};

// Gives one setting of the flags a value, as a flag, a profile or `probe --set` names it, without marking it as asked.
// kUsage if the setting is unknown, cannot be set, or the text is no value of it.
Status set_value(ModelFlags& flags, std::string_view setting, const std::string& value);
// The value in force; a default that depends on the machine is resolved.
std::string value_of(const ModelFlags& flags, std::string_view setting);

struct ResolvedSettings {
  std::vector<SettingInForce> settings;  // in the table's order
  std::string note;                      // one sentence if a profile is there and cannot be used
};
// Puts the tuned choices for this model on this machine into `flags` where the user asked for nothing (and not at all
// with --no-profile), and tells where every value comes from. Needs the model's hash only if it is remembered already:
// `kazeia tune` remembers it, and without it there is no profile. Never fails; never reads the model's weights.
ResolvedSettings resolve_settings(ModelFlags& flags);

}  // namespace kazeia::cli
