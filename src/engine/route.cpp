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

// Which model a verdict is about: cheap to make at every start, other after every change of the file.
std::string model_identity(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  return fmt::format("{}:{}:{}", std::filesystem::path(path).filename().string(), size, time);
}

// What is remembered about the device, if anything is.
class Memory {
 public:
  explicit Memory(const RouteOptions& options)
      : path_(options.remember ? npu::profile_path(options.profile_file) : std::string()) {
    // Nothing to read yet is no news.
    if (path_.empty() || !std::filesystem::exists(path_)) return;
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
    const bool is_new = !std::filesystem::exists(path_);
    npu::LoadedProfile loaded = npu::update_profile(path_, change);
    if (!loaded.note.empty() && !(is_new && std::filesystem::exists(path_))) log(LogLevel::kWarning, loaded.note);
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
  const std::string identity = model_identity(path);
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

// The NPU's route, or why it cannot be taken. Errors are those that the CPU would meet, too.
Result<RoutedModel> on_npu(const std::string& path, ModelOptions options, const RouteOptions& route, Memory& memory,
                           std::string& why_not) {
  RoutedModel routed;
  const Result<npu::Device*> device = npu::Device::open();
  if (!device.ok()) {
    why_not = device.error().message();
    // A machine without a driver has nothing that could be tried again.
    if (npu::Guard::status().kind != npu::FailureKind::kNone) memory.failure(why_not);
    return routed;
  }
  memory.change([&](npu::Profile& profile) {
    npu::record_device(profile, {fmt::format("v{}", (*device)->info().architecture), ""});
  });
  (*device)->gate().set_policy(memory.profile().placement);

  options.placement = Placement::kNpu;
  Result<std::shared_ptr<const Model>> model = Model::load(path, options);
  if (!model.ok()) {
    const ErrorCode code = model.error().code();
    if (code != ErrorCode::kEngine && code != ErrorCode::kUnsupported) return model.error();
    why_not = model.error().message();  // if the file is at fault, the CPU's route will say so
    memory.failure(why_not);
    return routed;
  }
  if (route.self_check) {
    Result<SelfCheck> check = checked(path, *model, memory);
    if (check.ok()) routed.check = *check;
    if (!check.ok() || !check->passed) {
      why_not = check.ok() ? check->finding : check.error().message();
      if (!npu::Guard::failed()) npu::Guard::declare_failed(npu::FailureKind::kGarbage, why_not);
      memory.failure(why_not);
      return routed;
    }
  }
  routed.model = std::move(*model);
  routed.used = route.route == Route::kNpuOnly ? Route::kNpuOnly : Route::kNpuPrefill;
  routed.npu.part = route.route == Route::kNpuOnly ? NpuPart::kAll : NpuPart::kPrefill;
  routed.npu.prefill_min_tokens = static_cast<std::size_t>(memory.profile().prefill_min_tokens);
  return routed;
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
  std::string why_not;
  KAZEIA_ASSIGN(RoutedModel routed, on_npu(path, options, route, memory, why_not));
  if (routed.model != nullptr) return routed;
  std::optional<SelfCheck> check = std::move(routed.check);
  // That a machine has no NPU is news only to who asked for it.
  const bool expected = route.route == Route::kAuto && npu::Guard::status().kind == npu::FailureKind::kNone;
  KAZEIA_ASSIGN(routed, on_cpu(path, std::move(options),
                               expected ? std::string() : fmt::format("the NPU is not used: {}", why_not)));
  routed.check = std::move(check);
  return routed;
}

void remember_run(const RoutedModel& routed, const NpuUse& use, const RouteOptions& route) {
  if (!route.remember || routed.used == Route::kCpu) return;
  Memory memory(route);
  if (!use.failure.empty()) {
    memory.failure(use.failure);
  } else if (use.prefill_tokens > 0) {
    memory.change([](npu::Profile& profile) { npu::record_success(profile); });
  }
}

}  // namespace kazeia
