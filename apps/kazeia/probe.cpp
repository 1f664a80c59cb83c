// `kazeia probe`: our side of `kazeia versus`, one measured process. Not listed in --help: a person wants `versus`.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/machine.h"
#include "bench/steps.h"
#include "engine/timeline.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct ProbeArguments {
  std::string model;
  int threads = 0;
  std::uint32_t context_tokens = 0;
  std::vector<std::string> steps;
  std::string tile_cache;
};

void report(const std::string& name, double value) {
  std::printf("{\"name\":\"%s\",\"value\":%.6f}\n", name.c_str(), value);
  std::fflush(stdout);
}

Status probe(const ProbeArguments& arguments) {
  std::vector<bench::Step> steps;
  for (const std::string& word : arguments.steps) {
    const auto step = bench::parse_step(word);
    if (!step) {
      return Error(ErrorCode::kUsage, fmt::format("'{}' is not a step", word),
                   "Use prefill:TOKENS or decode:DEPTH:TOKENS");
    }
    steps.push_back(*step);
  }
  const Stopwatch load;
  ModelOptions model_options;
  model_options.tile_cache_directory = arguments.tile_cache;
  KAZEIA_ASSIGN(const std::shared_ptr<const Model> model, Model::load(arguments.model, model_options));
  report("load_ms", load.elapsed_ms());
  TimelineOptions options;
  options.context_tokens = arguments.context_tokens;
  options.decode_threads = options.prefill_threads = arguments.threads;
  KAZEIA_ASSIGN(const std::unique_ptr<Timeline> timeline, Timeline::create(model, options));
  Tokens greeting;
  for (int i = 0; i < 16; ++i) greeting.push_back(bench::nth_token(i));
  KAZEIA_TRY(timeline->prefill(greeting));
  report("first_token_ms", load.elapsed_ms());

  Status failure;
  const auto keep = [&](Status status) {
    const bool ok = status.ok();
    if (!ok) failure = std::move(status);
    return ok;
  };
  const bench::Subject subject{[&] { timeline->reset(); },
                               [&] { return static_cast<std::int64_t>(timeline->token_count()); },
                               [&](const Tokens& prompt) { return keep(timeline->prefill(prompt)); },
                               [&](Token token) { return keep(timeline->decode(token)); }};
  if (!bench::run_steps(subject, steps, report)) return failure;
  report("peak_rss_bytes", static_cast<double>(read_process_memory().peak_rss_bytes));
  return {};
}

}  // namespace

void add_probe(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App* verb = app.add_subcommand("probe", "One measured process of `versus`; prints a JSON object a line.");
  verb->group("");
  verb->add_option("MODEL", arguments->model)->required();
  verb->add_option("THREADS", arguments->threads)->required();
  verb->add_option("CONTEXT", arguments->context_tokens)->required();
  verb->add_option("STEP", arguments->steps, "prefill:TOKENS or decode:DEPTH:TOKENS")->required();
  verb->add_option("--tile-cache", arguments->tile_cache);
  verb->callback([arguments, &action] { action = [arguments] { return probe(*arguments); }; });
}

}  // namespace kazeia::cli
