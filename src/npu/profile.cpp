#include "npu/profile.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/user_folders.h"

namespace kazeia::npu {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormat = 1;
constexpr std::uint64_t kMaxFileBytes = 1024 * 1024;
constexpr std::int64_t kMaxPrefillMinTokens = 65536;
constexpr std::uint64_t kMaxLeftAlone = 31;

// Of other processes. The file is replaced in one piece with or without it.
class FileLock {
 public:
  FileLock(const std::string& path, std::chrono::milliseconds patience) {
    using namespace std::chrono_literals;
    fd_ = ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const Stopwatch watch;
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 &&
           watch.elapsed_ms() < static_cast<double>(patience.count()))
      std::this_thread::sleep_for(10ms);
  }
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

Json to_json(const Profile& profile) {
  Json json;
  json["format"] = kFormat;
  json["device"] = {{"arch", profile.device.arch}};
  json["prefill_min_tokens"] = profile.prefill_min_tokens;
  Json& placement = json["placement"] = Json::object();
  for (std::size_t i = 0; i < kOpClasses; ++i) {
    const OpClass op_class = op_class_at(i);
    placement[std::string(op_class_name(op_class))] = profile.placement.allows(op_class) ? "npu" : "cpu";
  }
  if (profile.self_check.has_value()) {
    const SelfCheckVerdict& verdict = *profile.self_check;
    json["self_check"] = {
        {"passed", verdict.passed},         {"finding", verdict.finding},           {"time", verdict.time},
        {"engine", verdict.engine_version}, {"upstream", verdict.upstream_version}, {"model", verdict.model_hash}};
  }
  json["failures"] = {{"count", profile.failures.count},
                      {"consecutive", profile.failures.consecutive},
                      {"starts_since", profile.failures.starts_since},
                      {"last_reason", profile.failures.last_reason},
                      {"last_time", profile.failures.last_time}};
  return json;
}

// Reads members of an object and remembers the first that is not what it must be.
class Reader {
 public:
  Reader(const Json& object, std::string name, std::string& problem)
      : object_(object), name_(std::move(name)), problem_(problem) {
    if (!object_.is_object()) complain("is not an object");
  }

  void text(const char* key, std::string& value) {
    if (const Json* member = find(key)) {
      if (member->is_string()) {
        value = member->get<std::string>();
      } else {
        complain(fmt::format("'{}' is not a string", key));
      }
    }
  }
  void flag(const char* key, bool& value) {
    if (const Json* member = find(key)) {
      if (member->is_boolean()) {
        value = member->get<bool>();
      } else {
        complain(fmt::format("'{}' is not true or false", key));
      }
    }
  }
  void count(const char* key, std::uint64_t& value) {
    if (const Json* member = find(key)) {
      if (member->is_number_unsigned()) {
        value = member->get<std::uint64_t>();
      } else {
        complain(fmt::format("'{}' is not a count", key));
      }
    }
  }
  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  void complain(const std::string& what) {
    if (problem_.empty()) problem_ = name_.empty() ? what : fmt::format("{}: {}", name_, what);
  }

 private:
  const Json& object_;
  std::string name_;
  std::string& problem_;
};

void read_placement(const Json& object, OpPolicy& placement, std::string& problem) {
  Reader reader(object, "placement", problem);
  if (!object.is_object()) return;
  for (const auto& [name, processor] : object.items()) {
    const std::optional<OpClass> op_class = op_class_of_name(name);
    const std::string text = processor.is_string() ? processor.get<std::string>() : "";
    if (!op_class.has_value()) {
      reader.complain(fmt::format("there is no class '{}'", name));
    } else if (text != "npu" && text != "cpu") {
      reader.complain(fmt::format("'{}' is neither \"npu\" nor \"cpu\"", name));
    } else {
      placement.set(*op_class, text == "npu");
    }
  }
}

// Everything in `json`, or in `problem` why it cannot be used.
Profile from_json(const Json& json, std::string& problem) {
  Profile profile;
  Reader root(json, "", problem);
  if (const Json* device = root.find("device")) {
    Reader reader(*device, "device", problem);
    reader.text("arch", profile.device.arch);
  }
  if (const Json* tokens = root.find("prefill_min_tokens")) {
    const std::int64_t value = tokens->is_number_integer() ? tokens->get<std::int64_t>() : 0;
    if (value < 1 || value > kMaxPrefillMinTokens) {
      root.complain(fmt::format("'prefill_min_tokens' is not a number from 1 to {}", kMaxPrefillMinTokens));
    } else {
      profile.prefill_min_tokens = value;
    }
  }
  if (const Json* placement = root.find("placement")) read_placement(*placement, profile.placement, problem);
  if (const Json* check = root.find("self_check")) {
    SelfCheckVerdict& verdict = profile.self_check.emplace();
    Reader reader(*check, "self_check", problem);
    reader.flag("passed", verdict.passed);
    reader.text("finding", verdict.finding);
    reader.text("time", verdict.time);
    reader.text("engine", verdict.engine_version);
    reader.text("upstream", verdict.upstream_version);
    reader.text("model", verdict.model_hash);
  }
  if (const Json* failures = root.find("failures")) {
    Reader reader(*failures, "failures", problem);
    reader.count("count", profile.failures.count);
    reader.count("consecutive", profile.failures.consecutive);
    reader.count("starts_since", profile.failures.starts_since);
    reader.text("last_reason", profile.failures.last_reason);
    reader.text("last_time", profile.failures.last_time);
  }
  return profile;
}

enum class FileState { kGood, kMissing, kDamaged, kNewer };

struct ReadFile {
  LoadedProfile loaded;
  FileState state = FileState::kGood;
};

ReadFile defaults(FileState state, std::string note) {
  return {{Profile{}, std::move(note)}, state};
}

ReadFile read_file(const std::string& path) {
  if (path.empty()) {
    return defaults(FileState::kMissing, "the NPU's profile is not kept: neither HOME nor XDG_STATE_HOME is set");
  }
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return defaults(FileState::kMissing, fmt::format("no NPU profile at '{}' yet: defaults are used", path));
  }
  const Result<std::string> text = read_text_file(path, kMaxFileBytes);
  if (!text.ok()) {
    return defaults(FileState::kDamaged,
                    fmt::format("the NPU profile cannot be read ({}): defaults are used", text.error().message()));
  }
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return defaults(FileState::kDamaged, fmt::format("the NPU profile '{}' is damaged: defaults are used", path));
  }
  const auto format = json.find("format");
  const std::int64_t number = format != json.end() && format->is_number_integer() ? format->get<std::int64_t>() : 0;
  if (number > kFormat) {
    return defaults(FileState::kNewer,
                    fmt::format("the NPU profile '{}' has format {}, newer than this engine's {}: defaults are used "
                                "and it is left alone",
                                path, number, kFormat));
  }
  std::string problem;
  if (number < 1) problem = "'format' is missing";
  Profile profile = from_json(json, problem);
  if (!problem.empty()) {
    return defaults(FileState::kDamaged,
                    fmt::format("the NPU profile '{}' is damaged ({}): defaults are used", path, problem));
  }
  return {{std::move(profile), ""}, FileState::kGood};
}

void make_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // the write that follows reports it
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
}

std::uint64_t starts_left_alone(std::uint64_t consecutive) {
  return consecutive >= 5 ? kMaxLeftAlone : (std::uint64_t{1} << consecutive) - 1;
}

}  // namespace

std::string profile_path(const std::string& option) {
  if (!option.empty()) return option;
  if (std::string path = environment("KAZEIA_PROFILE"); !path.empty()) return path;
  return in_state_folder("profile.json");
}

LoadedProfile read_profile(const std::string& path) {
  return read_file(path).loaded;
}

Status write_profile(const std::string& path, const Profile& profile) {
  make_folder(path);
  KAZEIA_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path, 0600));
  // A reason can carry whatever bytes a driver put into its message.
  KAZEIA_TRY(file.write(to_json(profile).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  return file.commit();
}

LoadedProfile update_profile(const std::string& path, const std::function<void(Profile&)>& change,
                             std::chrono::milliseconds patience) {
  if (!path.empty()) make_folder(path);
  std::optional<FileLock> lock;
  if (!path.empty()) lock.emplace(path, patience);
  ReadFile file = read_file(path);
  change(file.loaded.profile);
  if (path.empty() || file.state == FileState::kNewer) return std::move(file.loaded);
  if (file.state == FileState::kDamaged) {
    std::error_code ignored;
    std::filesystem::rename(path, path + ".damaged", ignored);
  }
  if (file.state == FileState::kMissing) file.loaded.note.clear();
  const Status written = write_profile(path, file.loaded.profile);
  if (!written.ok()) file.loaded.note = fmt::format("the NPU's profile is not kept: {}", written.error().message());
  return std::move(file.loaded);
}

TryDecision should_try(const Profile& profile) {
  const FailureHistory& failures = profile.failures;
  const std::uint64_t alone = starts_left_alone(failures.consecutive);
  if (failures.starts_since >= alone) return {};
  const std::uint64_t left = alone - failures.starts_since;
  return {false, fmt::format(
                     "the NPU failed {} {} ({}); it is left alone for {}",
                     failures.consecutive == 1 ? "at" : fmt::format("{} times in a row, last at", failures.consecutive),
                     failures.last_time, failures.last_reason,
                     left == 1 ? "this start" : fmt::format("this start and {} more", left - 1))};
}

void record_failure(Profile& profile, std::string_view reason, const std::string& time) {
  ++profile.failures.count;
  ++profile.failures.consecutive;
  profile.failures.starts_since = 0;
  profile.failures.last_reason = reason;
  profile.failures.last_time = time;
}

void record_skip(Profile& profile) {
  ++profile.failures.starts_since;
}

void record_success(Profile& profile) {
  if (!profile.self_check.has_value() || !profile.self_check->passed) return;
  profile.failures.consecutive = 0;
  profile.failures.starts_since = 0;
}

void record_self_check(Profile& profile, SelfCheckVerdict verdict) {
  profile.self_check = std::move(verdict);
}

void record_device(Profile& profile, const DeviceIdentity& device) {
  if (device.arch.empty()) return;
  if (!profile.device.arch.empty() && device != profile.device) {
    profile.self_check.reset();
    profile.failures = {};
  }
  profile.device = device;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace kazeia::npu
