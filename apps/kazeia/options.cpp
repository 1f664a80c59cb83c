#include "options.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/machine.h"
#include "engine/forecast.h"
#include "plan/memory_plan.h"
#include "terminal.h"

namespace kazeia::cli {
namespace {

constexpr std::uint32_t kDefaultContextTokens = 4096;

std::uint32_t context_for(const Model& model, const ModelFlags& flags, bool quiet) {
  const std::uint32_t trained = model.trained_context_tokens();
  if (!flags.context_tokens) return trained == 0 ? kDefaultContextTokens : std::min(kDefaultContextTokens, trained);
  if (!quiet && trained != 0 && *flags.context_tokens > trained) {
    fmt::print(
        stderr,
        "kazeia: warning: the model was trained with {} tokens of context; beyond that it may lose the thread.\n",
        trained);
  }
  return *flags.context_tokens;
}

// What of the model the NPU does not run, so that a person knows why prefill is slower than it could be.
void print_refused(const Model& model) {
  const NpuPlacement& placement = model.npu_placement();
  if (placement.refused.empty()) return;
  double share = 0;
  for (const RefusedTensor& tensor : placement.refused) share += tensor.share;
  const RefusedTensor& first = placement.refused.front();
  fmt::print(stderr,
             "kazeia: the NPU does not run {} of this model's matrices ({:.1f} % of a prefill; the largest: '{}', {}). "
             "`kazeia prepare` makes a file of which it runs what it can.\n",
             placement.refused.size(), share * 100, first.name, first.type);
}

}  // namespace

ModelOptions WeightFlags::options() const {
  ModelOptions options;
  options.tile_cache_directory = tile_cache_directory;
  if (upstream_layouts) options.placement = Placement::kUpstream;
  return options;
}

void add_weight_flags(CLI::App& verb, WeightFlags& flags) {
  CLI::Option* cache =
      verb.add_option("--tile-cache", flags.tile_cache_directory,
                      "Keep the packed weights in this folder; the next start reads them instead of packing again")
          ->type_name("DIR");
  verb.add_flag("--upstream-layouts", flags.upstream_layouts,
                "Load and compute as llama.cpp alone would, without the tile layout (to compare)")
      ->excludes(cache);
}

void add_model_flags(CLI::App& verb, ModelFlags& flags) {
  verb.add_option("MODEL", flags.path, "The model, a GGUF file (of a split model, the first part)")->required();
  verb.add_option("--context", flags.context_tokens,
                  "Tokens of prompt and answer together (default: 4096, or what the model was trained with if less)")
      ->check(CLI::Range(1U, (1U << 31) - 256));
  verb.add_option("--threads", flags.threads, "Default: the physical performance cores")->check(CLI::Range(1, 512));
  verb.add_option_function<std::string>(
          "--kv", [&flags](const std::string& name) { flags.kv_type = *kv_type_of_name(name); },
          "Type of the KV cache: f16 (default), q8_0 (half of it), q4_0 (a quarter); coarser ones change answers a "
          "little")
      ->check(CLI::IsMember({"f16", "q8_0", "q4_0"}))
      ->type_name("TYPE");
  verb.add_option("--ubatch", flags.ubatch_tokens, "Widest piece of a prompt that is read at once (default 512)")
      ->check(CLI::Range(1U, 65536U));
  verb.add_option(
          "--budget", flags.budget_bytes,
          "Most memory it may take; more is refused before loading (default: 4GB, or what is free; 0 = no limit)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("SIZE");
  add_weight_flags(verb, flags.weights);
  add_route_flags(verb, flags.route);
}

void add_route_flags(CLI::App& verb, RouteOptions& route) {
  verb.add_option_function<std::string>(
          "--route", [&route](const std::string& name) { route.route = *route_of_name(name); },
          "Which processor does what: auto, cpu, npu-prefill (prefill on the NPU, decode on the CPU), npu-only\n"
          "(default: auto, the NPU's prefill if this machine has one that passed its check)")
      ->check(CLI::IsMember({"auto", "cpu", "npu-prefill", "npu-only"}))
      ->type_name("ROUTE");
  verb.add_option("--profile", route.profile_file,
                  "The file that remembers what this machine's NPU can do (default: $KAZEIA_PROFILE, or\n"
                  "kazeia/profile.json in the user's state folder)")
      ->type_name("FILE");
}

void add_sampling_flags(CLI::App& verb, SamplingOptions& sampling) {
  verb.add_option("--seed", sampling.seed, "Same seed, options and prompt: same text")->capture_default_str();
  verb.add_option("--temp", sampling.temperature, "0 = always the most likely token; up to 5")->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "Choose among the K most likely tokens; 0 = off")->capture_default_str();
  verb.add_option("--top-p", sampling.top_p, "Choose within this share of probability; 1 = off")->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "Drop tokens below this share of the likeliest; 0 = off")
      ->capture_default_str();
  verb.add_option("--repeat-penalty", sampling.repeat_penalty, "0.5 to 3; 1 = off")->capture_default_str();
  verb.add_option("--presence-penalty", sampling.presence_penalty, "-2 to 2; 0 = off")->capture_default_str();
}

std::string npu_sentence(const NpuUse& use) {
  std::string text =
      fmt::format("{} prompt tokens, {} graph nodes (CPU: {}), {} switches of {:.2f} ms", use.prefill_tokens,
                  use.npu_nodes, use.cpu_nodes, use.switches, use.switch_us_mean / 1000);
  if (!use.failure.empty()) text += "; failed: " + use.failure;
  return text;
}

TimelineOptions ModelFlags::timeline() const {
  TimelineOptions options;
  options.context_tokens = context_tokens.value_or(kDefaultContextTokens);
  options.decode_threads = options.prefill_threads = threads;
  options.kv_type = kv_type;
  options.ubatch_tokens = ubatch_tokens;
  return options;
}

Result<LoadedModel> load_model(const ModelFlags& flags, const CancelFlag& cancel, bool quiet,
                               std::uint64_t checkpoint_bytes) {
  if (flags.weights.upstream_layouts &&
      (flags.route.route == Route::kNpuPrefill || flags.route.route == Route::kNpuOnly)) {
    return Error(ErrorCode::kUsage,
                 fmt::format("--upstream-layouts is the CPU's alone, --route {} asks for the NPU",
                             route_name(flags.route.route)),
                 "Give one of them");
  }
  const Stopwatch watch;
  LoadedModel loaded;
  const std::uint64_t budget =
      flags.budget_bytes.value_or(plan::default_budget_bytes(read_machine().available_memory_bytes));
  KAZEIA_TRY(check_forecast(flags.path,
                            {.placement = Placement::kCpu,
                             .timeline = flags.timeline(),
                             .checkpoint_bytes = checkpoint_bytes,
                             .tile_cache = !flags.weights.tile_cache_directory.empty(),
                             .cut_to_trained = !flags.context_tokens.has_value()},
                            budget));
  {
    ProgressBar bar("loading");
    ModelOptions options = flags.weights.options();
    options.cancel = &cancel;
    options.on_progress = [&bar](float fraction) { bar.update(static_cast<double>(fraction)); };
    KAZEIA_ASSIGN(loaded.routed, load_on_route(flags.path, options, flags.route));
    loaded.model = loaded.routed.model;
  }
  if (!loaded.routed.note.empty()) fmt::print(stderr, "kazeia: {}.\n", loaded.routed.note);
  if (!quiet) print_refused(*loaded.model);
  TimelineOptions options = flags.timeline();
  options.npu = loaded.routed.npu;
  options.context_tokens = context_for(*loaded.model, flags, quiet);
  KAZEIA_ASSIGN(loaded.timeline, Timeline::create(loaded.model, options));
  loaded.load_ms = watch.elapsed_ms();
  return loaded;
}

}  // namespace kazeia::cli
