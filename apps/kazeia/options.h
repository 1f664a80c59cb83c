// The flags that verbs share, and what loads a model by them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/model.h"
#include "engine/route.h"
#include "engine/sampling.h"
#include "engine/timeline.h"

namespace kazeia::cli {

// How the weights are kept; what every verb that loads a model offers.
struct WeightFlags {
  std::string tile_cache_directory;  // empty: nothing is kept
  bool upstream_layouts = false;

  ModelOptions options() const;
};

struct ModelFlags {
  std::string path;
  WeightFlags weights;
  std::optional<std::uint32_t> context_tokens;  // not given: 4096, or what the model was trained with if that is less
  int threads = 0;                              // 0 = the engine's choice
  KvType kv_type = KvType::kF16;
  std::uint32_t ubatch_tokens = TimelineOptions{}.ubatch_tokens;
  std::optional<std::uint64_t> budget_bytes;  // not given: plan::default_budget_bytes(); 0 = no limit
  RouteOptions route;

  // As far as it is known before the model is.
  TimelineOptions timeline() const;
};

void add_weight_flags(CLI::App& verb, WeightFlags& flags);  // --tile-cache, --upstream-layouts
void add_model_flags(CLI::App& verb,
                     ModelFlags& flags);  // these, MODEL, and how it runs: --context, --kv, --budget, ...
void add_route_flags(CLI::App& verb, RouteOptions& route);           // --route, --profile
void add_sampling_flags(CLI::App& verb, SamplingOptions& sampling);  // --seed, --temp, --top-k, ...

struct LoadedModel {
  std::shared_ptr<const Model> model;
  RoutedModel routed;  // how it came to its processors
  std::unique_ptr<Timeline> timeline;
  double load_ms = 0;  // model and timeline
};

// Loads with a progress bar. `quiet` suppresses the warning about a context beyond the trained one. Refuses what would
// take more than the budget before it loads, with `checkpoint_bytes` for kept states in it.
Result<LoadedModel> load_model(const ModelFlags& flags, const CancelFlag& cancel, bool quiet,
                               std::uint64_t checkpoint_bytes = 0);

// "512 prompt tokens, 1840 graph nodes (CPU: 310), 2 switches of 0.41 ms"
std::string npu_sentence(const NpuUse& use);

}  // namespace kazeia::cli
