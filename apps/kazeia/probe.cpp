// `kazeia probe`: one measured process of `kazeia bench` and of our side of `kazeia versus`. Not listed in --help: a
// person wants one of these.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/machine.h"
#include "bench/child.h"
#include "bench/child_line.h"
#include "bench/steps.h"
#include "engine/route.h"
#include "engine/timeline.h"
#include "npu/device.h"
#include "options.h"
#include "probe_chat.h"
#include "run_settings.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct ProbeArguments {
  ModelFlags model;
  std::uint32_t context_tokens = 0;
  std::vector<std::string> steps;
  std::vector<std::string> settings;  // "decode_threads=1"; they beat the other flags
  bool only_on_route = false;
  std::string hash_memo;  // not empty: the model's hash is told, too
};

struct Steps {
  std::vector<bench::Step> plain;
  std::vector<ChatStep> chats;
  bool first_token = false;
};

Result<Steps> parse_steps(const std::vector<std::string>& words) {
  Steps steps;
  for (const std::string& word : words) {
    if (const auto plain = bench::parse_step(word)) {
      steps.plain.push_back(*plain);
    } else if (const auto chat = parse_chat_step(word)) {
      if (chat->kind == ChatStep::Kind::kFirstToken) {
        steps.first_token = true;
      } else {
        steps.chats.push_back(*chat);
      }
    } else {
      return Error(ErrorCode::kUsage, fmt::format("'{}' is not a step", word),
                   "Use prefill:TOKENS, prefill:TOKENS@DEPTH, decode:DEPTH:TOKENS, ttft, turn:NEW:ANSWER or "
                   "soak:SECONDS:INTERVAL");
    }
  }
  return steps;
}

Status apply(const std::vector<std::string>& settings, ModelFlags& flags) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return Error(ErrorCode::kUsage, fmt::format("'{}' is not a setting", setting), "Give --set NAME=VALUE");
    }
    const std::string name = setting.substr(0, equals);
    const Status set = set_value(flags, name, setting.substr(equals + 1));
    if (!set.ok()) return set.error().within(name);
  }
  return {};
}

// As a row of a table says it; the reason is in the route's note.
const char* route_status(const RoutedModel& routed, Route asked) {
  if (asked == Route::kAuto || routed.used == asked) return "used";
  if (routed.check && !routed.check->passed) return "self-check failed";
  return npu::Device::opened() == nullptr ? "no NPU" : "not usable";
}

Status run_plain(Timeline& timeline, const std::vector<bench::Step>& steps) {
  Status failure;
  const auto keep = [&](Status status) {
    const bool ok = status.ok();
    if (!ok) failure = std::move(status);
    return ok;
  };
  const auto deepen = [&](std::int64_t depth) {
    const auto count = static_cast<std::int64_t>(timeline.token_count());
    const Status status = timeline.append_unread(bench::tokens_between(count, depth));
    if (!status.ok() && status.error().code() == ErrorCode::kUnsupported) return bench::Deepened::kUnsupported;
    return keep(status) ? bench::Deepened::kDone : bench::Deepened::kFailed;
  };
  const bench::Subject subject{[&] { timeline.reset(); },
                               [&] { return static_cast<std::int64_t>(timeline.token_count()); },
                               [&](const Tokens& prompt) { return keep(timeline.prefill(prompt)); },
                               [&](Token token) { return keep(timeline.decode(token)); }, deepen};
  bench::StepRunner runner(subject);
  if (!runner.run(steps, bench::tell_sample, bench::tell_begin)) return failure;
  if (!runner.depth_made().empty()) bench::tell_fact("depth", runner.depth_made());
  return {};
}

Status probe(const ProbeArguments& arguments) {
  bench::end_with_parent();
  KAZEIA_ASSIGN(const Steps steps, parse_steps(arguments.steps));
  ModelFlags flags = arguments.model;
  KAZEIA_TRY(apply(arguments.settings, flags));
  const Stopwatch load;
  KAZEIA_ASSIGN(RoutedModel routed, load_on_route(flags.path, flags.weights.options(), flags.route));
  bench::tell_fact("route", std::string(route_name(routed.used)));
  bench::tell_fact("route_status", route_status(routed, flags.route.route));
  bench::tell_fact("route_note", routed.note);
  if (arguments.only_on_route && routed.used != flags.route.route) return {};

  routed.npu.prefill_min_tokens = flags.npu_min_width.value_or(routed.npu.prefill_min_tokens);
  TimelineOptions options = flags.timeline();
  options.npu = routed.npu;
  options.context_tokens = flags.context_tokens.value_or(arguments.context_tokens);
  KAZEIA_ASSIGN(std::unique_ptr<Timeline> timeline, Timeline::create(routed.model, options));
  bench::tell_sample("load_ms", load.elapsed_ms());
  Tokens greeting;
  for (int i = 0; i < 16; ++i) greeting.push_back(bench::nth_token(i));
  KAZEIA_TRY(timeline->prefill(greeting));
  bench::tell_sample("first_token_ms", load.elapsed_ms());

  if (steps.first_token) KAZEIA_TRY(measure_first_token(routed.model, *timeline));
  KAZEIA_TRY(run_plain(*timeline, steps.plain));
  // Before the chat, which keeps states that the other side of a comparison knows nothing of.
  bench::tell_sample("peak_rss_bytes", static_cast<double>(read_process_memory().peak_rss_bytes));
  NpuUse use = timeline->npu_use();
  if (!steps.chats.empty())
    KAZEIA_TRY(measure_chat(routed.model, std::move(timeline), flags.checkpoints(), steps.chats, use));
  if (!use.failure.empty()) bench::tell_fact("npu_failure", use.failure);
  remember_run(routed, use, flags.route);
  if (!arguments.hash_memo.empty()) {
    KAZEIA_ASSIGN(const std::string hash, routed.model->content_hash(arguments.hash_memo));
    bench::tell_fact("model_hash", hash);
  }
  return {};
}

}  // namespace

void add_probe(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ProbeArguments>();
  ModelFlags& model = arguments->model;
  model.route.route = Route::kCpu;
  CLI::App* verb = app.add_subcommand("probe", "One measured process; prints a JSON object a line.");
  verb->group("");
  verb->add_option("MODEL", model.path)->required();
  verb->add_option("THREADS", model.threads)->required();
  verb->add_option("CONTEXT", arguments->context_tokens)->required();
  verb->add_option("STEP", arguments->steps, "prefill:TOKENS, decode:DEPTH:TOKENS, ttft, turn:NEW:ANSWER, ...");
  verb->add_option("--tile-cache", model.weights.tile_cache_directory);
  add_setting_flag(*verb, model, "kv", "");
  add_route_flags(*verb, model.route);
  verb->add_option("--set", arguments->settings, "NAME=VALUE, as `kazeia why` names them; repeatable")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_flag("--only-on-route", arguments->only_on_route, "Measure nothing if it came to another route");
  verb->add_option("--hash-memo", arguments->hash_memo);
  verb->callback([arguments, &action] { action = [arguments] { return probe(*arguments); }; });
}

}  // namespace kazeia::cli
