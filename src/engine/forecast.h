// What a model with one timeline will take of the memory, before any of it is allocated: upstream simulates its own
// allocations (no_alloc) and tells their sizes; the rest is what this process grew by while it read the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/placement.h"
#include "engine/timeline.h"
#include "plan/memory_plan.h"

namespace kazeia {

struct ForecastRequest {
  Placement placement = Placement::kCpu;
  TimelineOptions timeline;
  std::uint64_t checkpoint_bytes = 0;  // budget for kept states (session/prefix_cache.h); 0 without sessions
  bool tile_cache = false;             // weights are then pages of a file
  bool cut_to_trained = false;         // a context larger than the trained one becomes that
};

// A model's metadata and vocabulary, without its weights, for any number of forecasts.
class Forecaster {
 public:
  // Errors as Model::load() before it loads; kNpu opens the device.
  static Result<std::unique_ptr<Forecaster>> open(const std::string& path, Placement placement);
  ~Forecaster();
  Forecaster(const Forecaster&) = delete;
  Forecaster& operator=(const Forecaster&) = delete;

  // Some 10 ms. kUsage for options out of range, kEngine if upstream cannot plan such a timeline.
  Result<plan::MemoryPlan> forecast(const ForecastRequest& request) const;
  std::uint32_t trained_context_tokens() const;

 private:
  struct State;
  explicit Forecaster(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// As plan::check_budget(), for a load that is about to begin; `budget_bytes` 0: nothing is checked. What fits in any
// case, by a generous look at the file's metadata, costs no time. Errors besides kTooLarge: those of open().
Status check_forecast(const std::string& path, const ForecastRequest& request, std::uint64_t budget_bytes);

// The settings of a request as the plan names them, and a request with other ones.
plan::PlanSettings settings_of(const ForecastRequest& request);
ForecastRequest with_settings(ForecastRequest request, const plan::PlanSettings& settings);

}  // namespace kazeia
