#include "options.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
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
  add_weight_flags(verb, flags.weights);
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

Result<LoadedModel> load_model(const ModelFlags& flags, const CancelFlag& cancel, bool quiet) {
  const Stopwatch watch;
  LoadedModel loaded;
  {
    ProgressBar bar("loading");
    ModelOptions options = flags.weights.options();
    options.cancel = &cancel;
    options.on_progress = [&bar](float fraction) { bar.update(static_cast<double>(fraction)); };
    KAZEIA_ASSIGN(loaded.model, Model::load(flags.path, options));
  }
  TimelineOptions options;
  options.context_tokens = context_for(*loaded.model, flags, quiet);
  options.decode_threads = flags.threads;
  options.prefill_threads = flags.threads;
  KAZEIA_ASSIGN(loaded.timeline, Timeline::create(loaded.model, options));
  loaded.load_ms = watch.elapsed_ms();
  return loaded;
}

}  // namespace kazeia::cli
