#include "bench_runs.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"
#include "bench/child.h"
#include "bench/figures.h"
#include "bench/protocol.h"
#include "bench/settle.h"
#include "engine/forecast.h"
#include "engine/timeline.h"
#include "plan/memory_plan.h"
#include "session/directory.h"

namespace kazeia::cli {
namespace {

using bench::Measurement;
using bench::Side;

constexpr std::array kRoutes{Route::kCpu, Route::kNpuPrefill, Route::kNpuOnly};

bench::ProtocolEvents show_progress(const Workbench& work) {
  bench::ProtocolEvents events;
  const bench::ProtocolOptions& options = work.arguments.protocol;
  events.on_repetition = [&options](int repetition) {
    fmt::print(stderr, "repetition {} ({} to {})\n", repetition + 1, options.least_repetitions,
               options.most_repetitions);
  };
  events.on_sample = [](const std::string& label, const std::string& name, double value) {
    const bool bytes = name.ends_with("_bytes");
    fmt::print(stderr, "  {:<12} {:<22} {}\n", label, name,
               bytes ? format_bytes(static_cast<std::uint64_t>(value)) : fmt::format("{:.1f}", value));
  };
  events.on_remark = [](const std::string& sentence) { fmt::print(stderr, "  {}\n", sentence); };
  return events;
}

Result<Measurement> measured(const Workbench& work, const std::vector<bench::Configuration>& configurations) {
  bench::ProtocolOptions options = work.arguments.protocol;
  const std::uint64_t memory_bytes =
      bench::memory_to_settle(work.facts.weight_bytes, read_machine().available_memory_bytes);
  options.prepare = [&] { bench::settle(work.facts.parts, memory_bytes); };
  bench::MachineReader reader;
  return bench::measure(configurations, options, bench::real_seams(reader), show_progress(work), &work.cancel);
}

std::string fact(const std::map<std::string, std::string>& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "" : found->second;
}

void add_note(bench::Record& record, const std::string& sentence) {
  record.note += (record.note.empty() ? "" : "; ") + sentence;
}

void add_figures(const Side& side, const std::string& prefix, bench::Record& record) {
  for (const auto& [name, samples] : side.samples.rows()) {
    record.figures.push_back(bench::make_figure(name, samples, prefix));
  }
}

// What the plan foretold for each process up to its peak_rss_bytes, part by part. It is made here, not in a process
// that is measured, whose memory it would be part of.
void add_plan(const Workbench& work, const Side& ours, bench::Record& record) {
  const std::vector<double>* peaks = ours.samples.find("peak_rss_bytes");
  const std::optional<KvType> kv_type = kv_type_of_name(work.arguments.kv_type);
  if (peaks == nullptr || !kv_type) return;
  ForecastRequest request;
  request.placement = fact(ours.facts, "route") == route_name(Route::kCpu) ? Placement::kCpu : Placement::kNpu;
  request.timeline.context_tokens = work.plan.context_tokens;
  request.timeline.kv_type = *kv_type;
  request.tile_cache = !work.arguments.tile_cache.empty();
  const auto planned = [&]() -> Result<plan::MemoryPlan> {
    KAZEIA_ASSIGN(const std::unique_ptr<Forecaster> forecaster,
                  Forecaster::open(work.arguments.model, request.placement));
    return forecaster->forecast(request);
  }();
  if (!planned.ok()) return add_note(record, "no memory plan: " + planned.error().message());
  for (const plan::MemoryPart& part : planned->parts) {
    record.figures.push_back(bench::make_figure(fmt::format("{}{}_bytes", bench::kPlanPrefix, part.name),
                                                std::vector<double>(peaks->size(), static_cast<double>(part.bytes))));
  }
}

// How depths were made, and whether both sides of a comparison did the same.
void add_depth(const Measurement& measurement, bench::Record& record) {
  for (const Side& side : measurement.sides) {
    const std::string made = fact(side.facts, "depth");
    if (made.empty()) continue;
    std::string& setting = record.settings["depth"];
    if (setting.empty()) {
      setting = made;
    } else if (setting != made) {
      setting += fmt::format(", {}: {}", side.label, made);
    }
  }
}

// How it went, and what a reader of the record has to know.
void add_circumstances(const Workbench& work, const Measurement& measurement, BenchRun& run) {
  bench::Record& record = run.record;
  record.moments = measurement.moments;
  record.disturbance = measurement.disturbance;
  add_depth(measurement, record);
  const auto throttled = std::count_if(record.moments.begin(), record.moments.end(),
                                       [](const bench::MachineMoment& moment) { return moment.throttled; });
  if (throttled > 0) add_note(record, "the processor was throttled for heat");
  for (const Side& side : measurement.sides) {
    const std::string failure = fact(side.facts, "npu_failure");
    if (!failure.empty()) record.disturbance = fmt::format("the NPU failed ({}): {}", side.label, failure);
    const std::string no_chat = fact(side.facts, "no_chat");
    if (!no_chat.empty()) add_note(record, "no chat was measured: " + no_chat);
    const std::string generated = fact(side.facts, "turn_generated_tokens");
    if (!generated.empty() && side.samples.find("turn_decode") == nullptr) {
      add_note(record, fmt::format("the turn's answer was too short to have a speed (tokens: {})", generated));
    }
  }
  if (measurement.worst_variation > work.arguments.protocol.most_variation) {
    run.noise = fmt::format("{} varied by {:.1f} %, more than {:.3g} %", measurement.noisiest,
                            measurement.worst_variation * 100, work.arguments.protocol.most_variation * 100);
  }
}

}  // namespace

std::string hash_memo() {
  const Result<std::string> root = SessionDirectory::default_root();
  return (root.ok() ? *root : (std::filesystem::temp_directory_path() / "kazeia").string()) + "/.models";
}

BenchRun begin_run(const Workbench& work, const std::string& kind) {
  BenchRun run;
  run.record = begin_record(kind);
  run.record.model = work.facts.identity;
  run.record.settings = work.plan.settings;
  for (const std::string& remark : work.plan.remarks) fmt::print(stderr, "kazeia: {}.\n", remark);
  return run;
}

std::vector<std::string> probe_command(const Workbench& work, Route route) {
  const BenchArguments& arguments = work.arguments;
  std::vector<std::string> command{bench::own_program_path(), "probe",   "--kv",
                                   arguments.kv_type,         "--route", std::string(route_name(route))};
  const auto add = [&command](const char* option, const std::string& value) {
    if (value.empty()) return;
    command.emplace_back(option);
    command.push_back(value);
  };
  add("--tile-cache", arguments.tile_cache);
  add("--profile", arguments.route.profile_file);
  return command;
}

std::vector<std::string> with_steps(const Workbench& work, std::vector<std::string> command,
                                    const std::vector<std::string>& steps) {
  command.push_back(work.arguments.model);
  command.push_back(std::to_string(work.plan.threads));
  command.push_back(std::to_string(work.plan.context_tokens));
  command.insert(command.end(), steps.begin(), steps.end());
  return command;
}

std::vector<std::string> warm_up_command(const Workbench& work, Route route) {
  std::vector<std::string> command = probe_command(work, route);
  command.emplace_back("--hash-memo");
  command.push_back(hash_memo());
  return with_steps(work, std::move(command), {"decode:0:8"});
}

Result<BenchRun> run_one(const Workbench& work) {
  BenchRun run = begin_run(work, "bench");
  const Route route = work.arguments.route.route;
  KAZEIA_ASSIGN(const Measurement measurement,
                measured(work, {{"kazeia", with_steps(work, probe_command(work, route), work.plan.steps),
                                 warm_up_command(work, route)}}));
  const Side& side = measurement.sides[0];
  run.record.model.hash = fact(side.facts, "model_hash");
  run.record.settings["route"] = fact(side.facts, "route");
  if (!fact(side.facts, "route_note").empty()) add_note(run.record, fact(side.facts, "route_note"));
  add_figures(side, "", run.record);
  add_plan(work, side, run.record);
  add_circumstances(work, measurement, run);
  return run;
}

Result<BenchRun> run_baseline(const Workbench& work) {
  const std::string peer =
      (std::filesystem::path(bench::own_program_path()).parent_path() / "kazeia-upstream-peer").string();
  std::error_code ignored;
  if (!std::filesystem::exists(peer, ignored)) {
    return Error(ErrorCode::kFile, "the upstream side of the comparison is not built",
                 "Run `make versus`, which builds kazeia-upstream-peer beside this program");
  }
  BenchRun run = begin_run(work, "baseline");
  const Route route = work.arguments.route.route;
  KAZEIA_ASSIGN(const Measurement measurement,
                measured(work, {{"kazeia", with_steps(work, probe_command(work, route), work.plan.steps),
                                 warm_up_command(work, route)},
                                {"upstream", with_steps(work, {peer}, work.plan.plain_steps), {}}}));
  const Side& ours = measurement.sides[0];
  const Side& theirs = measurement.sides[1];
  run.record.model.hash = fact(ours.facts, "model_hash");
  run.record.settings["route"] = fact(ours.facts, "route");
  run.record.settings["baseline"] = "upstream";
  add_figures(ours, "", run.record);
  add_figures(theirs, "upstream_", run.record);
  // A machine that drifts slows both sides of a pair.
  for (const auto& [name, samples] : ours.samples.rows()) {
    const std::vector<double>* other = theirs.samples.find(name);
    if (other == nullptr) continue;
    run.record.figures.push_back(
        bench::make_ratio(name, bench::make_figure(name, samples), bench::make_figure(name, *other)));
  }
  add_plan(work, ours, run.record);
  add_circumstances(work, measurement, run);
  return run;
}

Result<BenchRun> run_routes(const Workbench& work) {
  BenchRun run = begin_run(work, "routes");
  std::vector<bench::Configuration> configurations;
  bench::MachineReader reader;
  for (const Route route : kRoutes) {
    const std::string name(route_name(route));
    std::vector<std::string> command = warm_up_command(work, route);
    command.emplace_back("--only-on-route");
    fmt::print(stderr, "route {}\n", name);
    KAZEIA_ASSIGN(const bench::ChildRun seen, bench::watch_child(command, bench::real_seams(reader), &work.cancel));
    const std::string status = fact(seen.facts, "route_status");
    run.record.settings["route_" + name] = status;
    if (!fact(seen.facts, "model_hash").empty()) run.record.model.hash = fact(seen.facts, "model_hash");
    if (status != "used") {
      add_note(run.record, fmt::format("{}: {}", name, fact(seen.facts, "route_note")));
      continue;
    }
    configurations.push_back({name, with_steps(work, probe_command(work, route), work.plan.steps), {}});
  }
  KAZEIA_ASSIGN(const Measurement measurement, measured(work, configurations));
  for (const Side& side : measurement.sides) {
    add_figures(side, side.label + "_", run.record);
    if (!fact(side.facts, "npu_failure").empty()) run.record.settings["route_" + side.label] = "the NPU failed";
  }
  add_circumstances(work, measurement, run);
  return run;
}

}  // namespace kazeia::cli
