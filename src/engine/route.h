// Which processor does what: the rows of the users' own table, and the choice between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model.h"
#include "engine/npu_use.h"
#include "engine/self_check.h"

namespace kazeia {

enum class Route {
  kAuto,        // the NPU's prefill where the profile and the self-check allow it
  kCpu,         // prefill and decode on the CPU
  kNpuPrefill,  // prefill on the NPU, decode on the CPU, over one copy of the weights
  kNpuOnly,     // both on the NPU (token table and output head stay with the CPU); to compare
};
std::string_view route_name(Route route);  // "auto", "cpu", "npu-prefill", "npu-only"
std::optional<Route> route_of_name(std::string_view name);

struct RouteOptions {
  Route route = Route::kAuto;
  // Reads and writes the profile (npu/profile.h): what failed before is left alone for a while.
  bool remember = true;
  std::string profile_file;  // "" = npu::profile_path()'s choice
  // A short prompt on both processors before the first use; its verdict is remembered per model.
  bool self_check = true;
};

struct RoutedModel {
  std::shared_ptr<const Model> model;
  NpuOptions npu;            // for the timelines of this model
  Route used = Route::kCpu;  // never kAuto
  std::string note;          // why the NPU is not used although it was asked for or is there; empty otherwise
  std::optional<SelfCheck> check;
};

// Loads the model for a route. A device that is missing, broken or wrong costs a note and the CPU's route, whatever was
// asked for; only what would also fail on the CPU is an error. `options.placement` is chosen here, except kUpstream,
// which excludes the NPU.
Result<RoutedModel> load_on_route(const std::string& path, ModelOptions options, const RouteOptions& route);

// After a run that used the device: remembers how it went.
void remember_run(const RoutedModel& routed, const NpuUse& use, const RouteOptions& route);

}  // namespace kazeia
