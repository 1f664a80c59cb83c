// The flags that verbs share, and what loads a model by them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/model.h"
#include "engine/route.h"
#include "engine/sampling.h"
#include "engine/timeline.h"
#include "session/prefix_cache.h"

namespace kazeia::cli {

// How the weights are kept; what every verb that loads a model offers.
struct WeightFlags {
  std::string tile_cache_directory;  // empty: nothing is kept
  bool upstream_layouts = false;
  bool huge_pages = ModelOptions{}.huge_pages;

  ModelOptions options() const;
};

struct ModelFlags {
  std::string path;
  WeightFlags weights;
  std::optional<std::uint32_t> context_tokens;  // not given: 4096, or what the model was trained with if that is less
  int threads = 0;                              // of both phases; 0 = the engine's choice
  int prefill_threads = 0;                      // 0 = `threads`
  int decode_threads = 0;                       // 0 = `threads`
  std::vector<int> cores;                       // empty: all
  std::optional<int> poll;
  KvType kv_type = KvType::kF16;
  std::uint32_t ubatch_tokens = TimelineOptions{}.ubatch_tokens;
  bool flash_attention = TimelineOptions{}.flash_attention;
  AttentionKernels attention = TimelineOptions{}.attention;
  std::optional<std::size_t> npu_min_width;  // not given: as the NPU's profile has it
  std::optional<std::size_t> checkpoint_spacing_tokens;
  std::optional<std::uint64_t> checkpoint_memory_bytes;
  std::optional<std::uint64_t> budget_bytes;  // not given: plan::default_budget_bytes(); 0 = no limit
  RouteOptions route;
  bool use_tuned = true;
  // The settings (plan/settings.h) that were given as flags.
  std::set<std::string, std::less<>> asked;

  // As far as it is known before the model is.
  TimelineOptions timeline() const;
  PrefixCacheOptions checkpoints() const;
};

void add_weight_flags(CLI::App& verb, WeightFlags& flags);  // --tile-cache, --upstream-layouts
// These, MODEL, and how it runs: --context, --budget, --threads, --kv, ...
void add_model_flags(CLI::App& verb, ModelFlags& flags);
// The flag of one setting; for those of checkpoints, which add_model_flags() does not offer.
CLI::Option* add_setting_flag(CLI::App& verb, ModelFlags& flags, std::string_view setting, const std::string& help);
void add_route_flags(CLI::App& verb, RouteOptions& route);           // --route, --profile
void add_sampling_flags(CLI::App& verb, SamplingOptions& sampling);  // --seed, --temp, --top-k, ...

struct ResolvedSettings;

// Whether states may be kept beside the timeline's (session/prefix_cache.h): then the memory plan has them.
enum class KeptStates { kNone, kCheckpoints };

struct LoadedModel {
  ModelFlags flags;  // as given, with what the tuned profile chose
  std::shared_ptr<const ResolvedSettings> settings;
  std::shared_ptr<const Model> model;
  RoutedModel routed;  // how it came to its processors
  std::unique_ptr<Timeline> timeline;
  double load_ms = 0;  // model and timeline
};

// Resolves the settings (run_settings.h) and loads with a progress bar. `quiet` suppresses the warning about a context
// beyond the trained one. Refuses what would take more than the budget before it loads.
Result<LoadedModel> load_model(const ModelFlags& flags, const CancelFlag& cancel, bool quiet,
                               KeptStates kept = KeptStates::kNone);

// "512 prompt tokens, 1840 graph nodes (CPU: 310), 2 switches of 0.41 ms"
std::string npu_sentence(const NpuUse& use);

}  // namespace kazeia::cli
