#include "bench/tuned_profile.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/files.h"
#include "base/user_folders.h"
#include "bench/record_rules.h"
#include "bench/strict_json.h"
#include "plan/settings.h"

namespace kazeia::bench {
namespace {

constexpr std::uint64_t kForm = 1;
constexpr std::uint64_t kMostBytes = 64 * 1024;
constexpr std::size_t kMostChoices = 64;
constexpr std::size_t kLongestText = 200;
constexpr double kMostGain = 1000;

// ---- what a profile must be

bool is_short_text(std::string_view text) {
  return !text.empty() && text.size() <= kLongestText &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string fault_of(const TunedChoice& choice) {
  if (!is_name(choice.setting)) return "a choice without a name";
  const auto fault = [&](const char* what) { return fmt::format("{}: {}", choice.setting, what); };
  if (!is_short_text(choice.value) || !is_short_text(choice.instead)) return fault("a value that is no short text");
  if (!is_hex(choice.record, 12)) return fault("the id of its record is not 12 hexadecimal digits");
  if (!is_name(choice.figure)) return fault("it names no figure");
  const Ratio& gain = choice.gain;
  if (!(1 < gain.low && gain.low <= gain.median && gain.median <= gain.high && gain.high <= kMostGain)) {
    return fault("its gain is no interval above 1");
  }
  return "";
}

// Empty, or why it cannot be one, for people.
std::string fault_of(const TunedProfile& profile) {
  if (!is_hex(profile.machine_id, 8)) return "its machine is not named by 8 hexadecimal digits";
  if (!is_hex(profile.model_hash, 32)) return "its model is not named by 32 hexadecimal digits";
  if (!is_short_text(profile.engine_version)) return "its engine has no version";
  if (!is_short_text(profile.upstream_version)) return "its upstream has no version";
  if (!is_time(profile.time)) return "its time is none";
  if (profile.choices.size() > kMostChoices) return "it has too many choices";
  for (const TunedChoice& choice : profile.choices) {
    if (std::string fault = fault_of(choice); !fault.empty()) return fault;
    if (profile.find(choice.setting) != &choice) return fmt::format("{} is chosen twice", choice.setting);
  }
  return "";
}

// ---- text

std::string to_text(const TunedProfile& profile) {
  Json choices = Json::array();
  for (const TunedChoice& choice : profile.choices) {
    choices.push_back(
        {{"setting", choice.setting},
         {"value", choice.value},
         {"instead", choice.instead},
         {"record", choice.record},
         {"figure", choice.figure},
         {"gain", {{"median", choice.gain.median}, {"low", choice.gain.low}, {"high", choice.gain.high}}}});
  }
  const Json json = {{"profile", kForm},
                     {"machine_id", profile.machine_id},
                     {"model_hash", profile.model_hash},
                     {"engine_version", profile.engine_version},
                     {"upstream_version", profile.upstream_version},
                     {"time", profile.time},
                     {"choices", std::move(choices)}};
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Result<TunedChoice> choice_from(const Json& value, std::size_t number) {
  const std::string where = fmt::format("choice {}", number);
  KAZEIA_ASSIGN(const JsonObject object,
                JsonObject::of(value, where, {"setting", "value", "instead", "record", "figure", "gain"}));
  TunedChoice choice;
  KAZEIA_TRY(object.take("setting", choice.setting));
  KAZEIA_TRY(object.take("value", choice.value));
  KAZEIA_TRY(object.take("instead", choice.instead));
  KAZEIA_TRY(object.take("record", choice.record));
  KAZEIA_TRY(object.take("figure", choice.figure));
  KAZEIA_ASSIGN(const JsonObject gain, JsonObject::of(object.at("gain"), where + "'s gain", {"median", "low", "high"}));
  KAZEIA_TRY(gain.take("median", choice.gain.median));
  KAZEIA_TRY(gain.take("low", choice.gain.low));
  KAZEIA_TRY(gain.take("high", choice.gain.high));
  return choice;
}

Result<TunedProfile> profile_from(std::string_view text) {
  KAZEIA_ASSIGN(const Json json, parse_json_object(text));
  const auto form = json.find("profile");
  if (form == json.end() || !form->is_number_unsigned() || *form == 0) return bad_json("it has no \"profile\"");
  if (*form > kForm) {
    return Error(ErrorCode::kUnsupported, fmt::format("a newer engine wrote it (its form is {}, this engine's {})",
                                                      form->get<std::uint64_t>(), kForm));
  }
  KAZEIA_ASSIGN(const JsonObject object, JsonObject::of(json, "it",
                                                        {"profile", "machine_id", "model_hash", "engine_version",
                                                         "upstream_version", "time", "choices"}));
  TunedProfile profile;
  KAZEIA_TRY(object.take("machine_id", profile.machine_id));
  KAZEIA_TRY(object.take("model_hash", profile.model_hash));
  KAZEIA_TRY(object.take("engine_version", profile.engine_version));
  KAZEIA_TRY(object.take("upstream_version", profile.upstream_version));
  KAZEIA_TRY(object.take("time", profile.time));
  KAZEIA_TRY(take_all(object, "choices", choice_from, profile.choices));
  if (std::string fault = fault_of(profile); !fault.empty()) return bad_json(std::move(fault));
  return profile;
}

// ---- files

LoadedTunedProfile none(const std::string& path, const std::string& why) {
  return {std::nullopt,
          fmt::format("the tuned profile '{}' is not used: {}; `kazeia tune MODEL --forget` removes it", path, why)};
}

}  // namespace

const TunedChoice* TunedProfile::find(std::string_view setting) const {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const TunedChoice& choice) { return choice.setting == setting; });
  return found == choices.end() ? nullptr : &*found;
}

std::string tuned_folder() {
  if (std::string folder = environment("KAZEIA_TUNED"); !folder.empty()) return folder;
  return in_state_folder("tuned");
}

std::string tuned_path(const std::string& folder, const std::string& machine_id, const std::string& model_hash) {
  return fmt::format("{}/{}-{}.json", folder, machine_id, model_hash);
}

LoadedTunedProfile read_tuned(const std::string& folder, const std::string& machine_id, const std::string& model_hash) {
  // Anything else could name a file elsewhere.
  if (folder.empty() || !is_hex(machine_id, 8) || !is_hex(model_hash, 32)) return {};
  const std::string path = tuned_path(folder, machine_id, model_hash);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) return {};
  const Result<std::string> text = read_text_file(path, kMostBytes);
  if (!text.ok()) return none(path, text.error().message());
  Result<TunedProfile> read = profile_from(*text);
  if (!read.ok()) {
    const bool newer = read.error().code() == ErrorCode::kUnsupported;
    return none(path, newer ? read.error().message() : fmt::format("it is damaged ({})", read.error().message()));
  }
  if (read->machine_id != machine_id) return none(path, fmt::format("it is of the machine {}", read->machine_id));
  if (read->model_hash != model_hash) return none(path, "it is of another model");
  LoadedTunedProfile loaded;
  const auto unknown = std::stable_partition(read->choices.begin(), read->choices.end(), [](const TunedChoice& choice) {
    return plan::find_setting(choice.setting) != nullptr;
  });
  if (unknown != read->choices.end()) {
    loaded.note = fmt::format("the tuned profile '{}' chooses settings that this engine does not have (the first: {})",
                              path, unknown->setting);
    read->choices.erase(unknown, read->choices.end());
  }
  loaded.profile = std::move(*read);
  return loaded;
}

Status check_tuned_folder(const std::string& folder) {
  if (folder.empty()) {
    return Error(ErrorCode::kWrite,
                 "there is no folder for tuned profiles: none of KAZEIA_TUNED, XDG_STATE_HOME and HOME is set",
                 "Name a folder in KAZEIA_TUNED");
  }
  KAZEIA_TRY(make_private_folder(folder, "Name a folder that is writable in KAZEIA_TUNED"));
  // Without a commit nothing is left behind.
  const Result<AtomicFileWriter> file = AtomicFileWriter::create(folder + "/check.json", 0600);
  return file.ok() ? Status() : file.error();
}

Status write_tuned(const std::string& folder, const TunedProfile& profile) {
  // What would not be read again is not written.
  if (const std::string fault = fault_of(profile); !fault.empty()) {
    return Error(ErrorCode::kWrite, "the tuned profile is not written: " + fault);
  }
  KAZEIA_TRY(check_tuned_folder(folder));
  KAZEIA_ASSIGN(AtomicFileWriter file,
                AtomicFileWriter::create(tuned_path(folder, profile.machine_id, profile.model_hash), 0600));
  KAZEIA_TRY(file.write(to_text(profile)));
  return file.commit();
}

}  // namespace kazeia::bench
