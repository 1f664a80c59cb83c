#include "engine/route.h"

#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/backend.h"
#include "npu/device.h"
#include "npu/gate.h"
#include "npu/guard.h"
#include "npu/profile.h"

namespace kazeia {
namespace {

constexpr std::array<std::pair<Route, std::string_view>, 4> kNames = {
    {{Route::kAuto, "auto"}, {Route::kCpu, "cpu"}, {Route::kNpuPrefill, "npu-prefill"}, {Route::kNpuOnly, "npu-only"}}};

// What a verdict is about: cheap to make at every start, other after every change of the file or of the placement.
std::string checked_identity(const std::string& path, const npu::OpPolicy& policy) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  std::string classes;
  for (std::size_t i = 0; i < npu::kOpClasses; ++i) classes += policy.allows(npu::op_class_at(i)) ? 'n' : 'c';
  return fmt::format("{}:{}:{}:{}", std::filesystem::path(path).filename().string(), size, time, classes);
}

// An unreadable folder is the same as a missing file here: nothing is remembered.
bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// What is remembered about the device, if anything is.
class Memory {
 public:
  explicit Memory(const RouteOptions& options)
      : path_(options.remember ? npu::profile_path(options.profile_file) : std::string()) {
    // Nothing to read yet is no news.
    if (path_.empty() || !exists(path_)) return;
    npu::LoadedProfile loaded = npu::read_profile(path_);
    if (!loaded.note.empty()) log(LogLevel::kWarning, loaded.note);
    profile_ = std::move(loaded.profile);
  }
  const npu::Profile& profile() const { return profile_; }
  void change(const std::function<void(npu::Profile&)>& change) {
    if (path_.empty()) {
      change(profile_);
      return;
    }
    const bool is_new = !exists(path_);
    npu::LoadedProfile loaded = npu::update_profile(path_, change);
    if (!loaded.note.empty() && !(is_new && exists(path_))) log(LogLevel::kWarning, loaded.note);
    profile_ = std::move(loaded.profile);
  }
  void failure(const std::string& reason) {
    change([&](npu::Profile& profile) { npu::record_failure(profile, reason, npu::utc_now()); });
  }

 private:
  std::string path_;
  npu::Profile profile_;
};

Result<SelfCheck> checked(const std::string& path, const std::shared_ptr<const Model>& model, Memory& memory) {
  const std::string identity = checked_identity(path, memory.profile().placement);
  const auto& verdict = memory.profile().self_check;
  if (verdict && verdict->passed && verdict->model_hash == identity && verdict->engine_version == KAZEIA_VERSION &&
      verdict->upstream_version == upstream_version() && memory.profile().failures.consecutive == 0) {
    SelfCheck check;
    check.passed = true;
    check.remembered = true;
    return check;
  }
  KAZEIA_ASSIGN(SelfCheck check, check_npu(model));
  memory.change([&](npu::Profile& profile) {
    npu::record_self_check(profile, {.passed = check.passed,
                                     .finding = check.finding,
                                     .time = npu::utc_now(),
                                     .engine_version = KAZEIA_VERSION,
                                     .upstream_version = upstream_version(),
                                     .model_hash = identity});
  });
  return check;
}

Result<RoutedModel> on_cpu(const std::string& path, ModelOptions options, std::string note) {
  RoutedModel routed;
  options.placement = options.placement == Placement::kUpstream ? Placement::kUpstream : Placement::kCpu;
  KAZEIA_ASSIGN(routed.model, Model::load(path, options));
  routed.npu.part = NpuPart::kNone;
  routed.note = std::move(note);
  return routed;
}

struct Attempt {
  RoutedModel routed;   // no model: the CPU's route has to load its own
  std::string why_not;  // the NPU is not used
  // Remembered if the CPU can load the file that the NPU could not: otherwise the file is at fault.
  bool blames_device = false;
};

// The NPU's route, or why it cannot be taken. Errors are those that the CPU would meet, too.
Result<Attempt> on_npu(const std::string& path, ModelOptions options, const RouteOptions& route, Memory& memory) {
  Attempt attempt;
  const Result<npu::Device*> device = npu::Device::open();
  if (!device.ok()) {
    attempt.why_not = device.error().message();
    // A machine without a driver has nothing that could be tried again.
    attempt.blames_device = npu::Guard::status().kind != npu::FailureKind::kNone;
    return attempt;
  }
  if (npu::Guard::failed()) {  // earlier in this process, and remembered then
    attempt.why_not = npu::Guard::status().reason;
    return attempt;
  }
  const int architecture = (*device)->info().architecture;
  memory.change([&](npu::Profile& profile) {
    npu::record_device(profile, {architecture == 0 ? std::string() : fmt::format("v{}", architecture)});
  });
  (*device)->set_policy(memory.profile().placement);

  options.placement = Placement::kNpu;
  Result<std::shared_ptr<const Model>> model = Model::load(path, options);
  if (!model.ok()) {
    const ErrorCode code = model.error().code();
    if (code != ErrorCode::kEngine && code != ErrorCode::kUnsupported) return model.error();
    attempt.why_not = model.error().message();
    attempt.blames_device = true;
    return attempt;
  }
  attempt.routed.model = std::move(*model);
  attempt.routed.npu.prefill_min_tokens = static_cast<std::size_t>(memory.profile().prefill_min_tokens);
  if (route.self_check) {
    KAZEIA_ASSIGN(attempt.routed.check, checked(path, attempt.routed.model, memory));
    if (!attempt.routed.check->passed) {
      attempt.why_not = attempt.routed.check->finding;
      attempt.blames_device = true;
      if (!npu::Guard::failed()) npu::Guard::declare_failed(npu::FailureKind::kGarbage, attempt.why_not);
      // The weights were compared with the file: the CPU goes on with them where they are.
      (*device)->gate().set_private_state(true);
      attempt.routed.npu.part = NpuPart::kNone;
      return attempt;
    }
  }
  attempt.routed.used = route.route == Route::kNpuOnly ? Route::kNpuOnly : Route::kNpuPrefill;
  attempt.routed.npu.part = route.route == Route::kNpuOnly ? NpuPart::kAll : NpuPart::kPrefill;
  return attempt;
}

}  // namespace

std::string_view route_name(Route route) {
  for (const auto& [value, name] : kNames) {
    if (value == route) return name;
  }
  return "unknown";
}

std::optional<Route> route_of_name(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

Result<RoutedModel> load_on_route(const std::string& path, ModelOptions options, const RouteOptions& route) {
  if (route.route == Route::kCpu || options.placement == Placement::kUpstream) {
    return on_cpu(path, std::move(options), {});
  }
  initialise_backend();
  Memory memory(route);
  if (route.route == Route::kAuto) {
    const npu::TryDecision decision = npu::should_try(memory.profile());
    if (!decision.should_try) {
      memory.change([](npu::Profile& profile) { npu::record_skip(profile); });
      return on_cpu(path, std::move(options), decision.why_not);
    }
  }
  KAZEIA_ASSIGN(Attempt attempt, on_npu(path, options, route, memory));
  RoutedModel& routed = attempt.routed;
  if (routed.model == nullptr) {
    std::optional<SelfCheck> check = std::move(routed.check);
    KAZEIA_ASSIGN(routed, on_cpu(path, std::move(options), {}));
    routed.check = std::move(check);
  }
  if (attempt.blames_device) memory.failure(attempt.why_not);
  // That a machine has no NPU is news only to who asked for it.
  const bool expected = route.route == Route::kAuto && npu::Guard::status().kind == npu::FailureKind::kNone;
  if (!attempt.why_not.empty() && !expected) routed.note = fmt::format("the NPU is not used: {}", attempt.why_not);
  return std::move(routed);
}

void remember_run(const RoutedModel& routed, const NpuUse& use, const RouteOptions& route) {
  if (!route.remember || routed.used == Route::kCpu) return;
  // A state that was too large for the device's memory says nothing about the device.
  if (npu::Guard::status().kind == npu::FailureKind::kOutOfMemory) return;
  Memory memory(route);
  if (!use.failure.empty()) {
    memory.failure(use.failure);
  } else if (use.prefill_tokens > 0) {
    memory.change([](npu::Profile& profile) { npu::record_success(profile); });
  }
}

}  // namespace kazeia
