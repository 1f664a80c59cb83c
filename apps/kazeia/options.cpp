#include "options.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/machine.h"
#include "engine/forecast.h"
#include "plan/memory_plan.h"
#include "plan/settings.h"
#include "plan/threads.h"
#include "run_settings.h"
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

const char* type_name(std::string_view setting) {
  if (setting == "kv") return "TYPE";
  if (setting == "cores") return "LIST";
  if (setting == "attention") return "KERNELS";
  if (setting == "flash_attention" || setting == "huge_pages") return "on|off";
  if (setting == "checkpoint_memory") return "SIZE";
  return "N";
}

void add_speed_flags(CLI::App& verb, ModelFlags& flags) {
  constexpr const char* kGroup = "Speed (`kazeia tune` chooses, `kazeia why` tells why)";
  verb.get_option("--route")->group(kGroup);
  verb.add_option("--threads", flags.threads, "Of both phases (default: the physical performance cores)")
      ->check(CLI::Range(1, 512))
      ->type_name("N")
      ->each([&flags](const std::string&) {
        flags.asked.insert({"prefill_threads", "decode_threads"});
      })
      ->group(kGroup);
  const auto add = [&](std::string_view setting, const std::string& help) {
    add_setting_flag(verb, flags, setting, help)->group(kGroup);
  };
  add("prefill_threads", "Threads that read the prompt (default: --threads)");
  add("decode_threads", "Threads that write the answer (default: --threads)");
  add("cores", "Cores that these threads may use, as in 0-5 or 2,3 (default: all)");
  add("poll",
      "How long threads look out for more work before they sleep, 0 to 100; off (default): made anew for every step");
  add("ubatch", "Widest piece of a prompt that is read at once (default 512)");
  add("kv",
      "Type of the KV cache: f16 (default), q8_0 (half of it), q4_0 (a quarter); coarser ones change answers a little");
  add("flash_attention", "Attention in one fused step (default on); a --kv other than f16 needs it");
  add("attention", "Whose kernels compute the attention on the CPU: kazeia (default; f16 caches only) or upstream");
  add("huge_pages", "Weights on huge pages, where the system has them (default on)");
  add("npu_min_width", "Narrowest piece of a prompt that the NPU reads (default: as `doctor --npu` found, or 32)");
  verb.add_flag_callback(
          "--no-profile", [&flags] { flags.use_tuned = false; },
          "Leave aside what `kazeia tune` chose for this model on this machine")
      ->group(kGroup);
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
  options.huge_pages = huge_pages;
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
  add_setting_flag(verb, flags, "context",
                   "Tokens of prompt and answer together (default: 4096, or what the model was trained with if less)");
  verb.add_option(
          "--budget", flags.budget_bytes,
          "Most memory it may take; more is refused before loading (default: 4GB, or what is free; 0 = no limit)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("SIZE");
  add_weight_flags(verb, flags.weights);
  add_route_flags(verb, flags.route);
  verb.get_option("--route")->each([&flags](const std::string&) { flags.asked.emplace("route"); });
  add_speed_flags(verb, flags);
}

CLI::Option* add_setting_flag(CLI::App& verb, ModelFlags& flags, std::string_view setting, const std::string& help) {
  const std::string flag(plan::find_setting(setting)->flag);
  return verb
      .add_option_function<std::string>(
          flag,
          [&flags, flag, name = std::string(setting)](const std::string& text) {
            const Status set = set_value(flags, name, text);
            if (!set.ok()) throw CLI::ValidationError(flag, set.error().sentence());
            flags.asked.insert(name);
          },
          help)
      ->type_name(type_name(setting));
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
  options.cores = cores;
  options.decode_threads = decode_threads != 0 ? decode_threads : threads;
  options.prefill_threads = prefill_threads != 0 ? prefill_threads : threads;
  // A number for one phase says nothing about the other one.
  if ((options.decode_threads == 0) != (options.prefill_threads == 0)) {
    (options.decode_threads == 0 ? options.decode_threads : options.prefill_threads) =
        plan::default_threads(read_machine(), cores);
  }
  options.poll = poll;
  options.kv_type = kv_type;
  options.ubatch_tokens = ubatch_tokens;
  options.flash_attention = flash_attention;
  options.attention = attention;
  return options;
}

PrefixCacheOptions ModelFlags::checkpoints() const {
  PrefixCacheOptions options;
  options.spacing_tokens = checkpoint_spacing_tokens.value_or(options.spacing_tokens);
  options.memory_budget_bytes = checkpoint_memory_bytes.value_or(options.memory_budget_bytes);
  return options;
}

Result<LoadedModel> load_model(const ModelFlags& asked, const CancelFlag& cancel, bool quiet, KeptStates kept) {
  LoadedModel loaded;
  loaded.flags = asked;
  ModelFlags& flags = loaded.flags;
  if (flags.weights.upstream_layouts &&
      (flags.route.route == Route::kNpuPrefill || flags.route.route == Route::kNpuOnly)) {
    return Error(ErrorCode::kUsage,
                 fmt::format("--upstream-layouts is the CPU's alone, --route {} asks for the NPU",
                             route_name(flags.route.route)),
                 "Give one of them");
  }
  const Stopwatch watch;
  ResolvedSettings settings = resolve_settings(flags);
  if (!settings.note.empty()) write_to_stderr(fmt::format("kazeia: {}.\n", settings.note));
  const std::uint64_t budget =
      flags.budget_bytes.value_or(plan::default_budget_bytes(read_machine().available_memory_bytes));
  KAZEIA_TRY(
      check_forecast(flags.path,
                     {.placement = Placement::kCpu,
                      .timeline = flags.timeline(),
                      .checkpoint_bytes = kept == KeptStates::kNone ? 0 : flags.checkpoints().memory_budget_bytes,
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
  NpuOptions& npu = loaded.routed.npu;
  npu.prefill_min_tokens = flags.npu_min_width.value_or(npu.prefill_min_tokens);
  TimelineOptions options = flags.timeline();
  options.npu = npu;
  options.context_tokens = context_for(*loaded.model, flags, quiet);
  KAZEIA_ASSIGN(loaded.timeline, Timeline::create(loaded.model, options));
  for (SettingInForce& setting : settings.settings) {  // known only now
    if (setting.setting->name == "context") setting.value = std::to_string(loaded.timeline->capacity_tokens());
  }
  loaded.settings = std::make_shared<const ResolvedSettings>(std::move(settings));
  loaded.load_ms = watch.elapsed_ms();
  return loaded;
}

}  // namespace kazeia::cli
