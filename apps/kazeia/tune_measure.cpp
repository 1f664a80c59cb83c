#include "tune_measure.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "bench/child.h"
#include "bench/figures.h"
#include "bench/ledger.h"
#include "bench/protocol.h"
#include "bench/settle.h"
#include "bench_runs.h"
#include "run_settings.h"
#include "terminal.h"

namespace kazeia::cli {
namespace {

// Besides those of the steps: no choice may make them worse.
constexpr std::string_view kLoad = "load_ms";
constexpr std::string_view kPeak = "peak_rss_bytes";

std::string figure_text(const std::string& name, double value) {
  if (name.ends_with("_bytes")) return fmt::format("{} {}", name, format_bytes(static_cast<std::uint64_t>(value)));
  return fmt::format("{} {:.4g}", name, value);
}

bench::Sample sample_of(const bench::Side& side, const TuneSteps& steps) {
  bench::Sample sample;
  for (const auto& [name, samples] : side.samples.rows()) {
    if (name == kLoad || name == kPeak) sample[name] = samples.front();
    for (const auto& [step, figure] : steps.figures) {
      if (step == name) sample[figure] = samples.front();
    }
  }
  return sample;
}

}  // namespace

std::string choices_text(const bench::Choices& choices) {
  if (choices.empty()) return "the defaults";
  std::vector<std::string> texts;
  for (const auto& [setting, value] : choices) texts.push_back(setting + " " + value);
  return fmt::format("{}", fmt::join(texts, ", "));
}

TuneMeasure::TuneMeasure(const TuneArguments& arguments, const ModelFacts& facts, const CancelFlag& cancel)
    : arguments_(arguments), facts_(facts), cancel_(cancel) {
  first_temperature_c_ = reader_.read().temperature_c;
}

void TuneMeasure::tell(const std::string& line) const {
  const int left = std::max(0, static_cast<int>(arguments_.minutes * 60 - seconds()));
  write_to_stderr(fmt::format("{:>3}:{:02} left  {}\n", left / 60, left % 60, line));
}

Status TuneMeasure::ended() {
  if (cancel_.requested()) {
    stop_.request();
    return Error(ErrorCode::kCancelled, "stopped by the user");
  }
  if (seconds() >= arguments_.minutes * 60) {
    stop_.request();
    return Error(ErrorCode::kCancelled, "the time was over");
  }
  return {};
}

bench::MeasuringSeams TuneMeasure::seams() {
  bench::MeasuringSeams seams = bench::real_seams(reader_);
  seams.run = [this, run = seams.run](const std::vector<std::string>& words, const bench::ChildEvents& events,
                                      const CancelFlag* cancel) {
    bench::ChildEvents watched = events;
    watched.on_wait = [this, wait = events.on_wait] {
      (void)ended();
      if (wait) wait();
    };
    return run(words, watched, cancel);
  };
  seams.sleep = [this, sleep = seams.sleep](int milliseconds) {
    (void)ended();
    sleep(milliseconds);
  };
  return seams;
}

std::vector<std::string> TuneMeasure::command(std::uint32_t context_tokens, const bench::Choices& choices,
                                              const std::vector<std::string>& words) const {
  const ModelFlags& model = arguments_.model;
  std::vector<std::string> command{bench::own_program_path(), "probe", "--route",
                                   std::string(route_name(model.route.route))};
  const auto add = [&command](const char* option, const std::string& value) {
    if (value.empty()) return;
    command.emplace_back(option);
    command.push_back(value);
  };
  add("--tile-cache", model.weights.tile_cache_directory);
  add("--profile", model.route.profile_file);
  if (model_hash_.empty()) add("--hash-memo", hash_memo());
  command.push_back(model.path);
  command.emplace_back("0");  // threads: the engine's choice, which depends on the cores
  command.push_back(std::to_string(context_tokens));
  command.insert(command.end(), words.begin(), words.end());
  // Last, because it takes as many values as there are.
  for (const auto& [setting, value] : choices) add("--set", fmt::format("{}={}", setting, value));
  return command;
}

Result<std::map<std::string, std::string>> TuneMeasure::warm_up() {
  tell("warming up");
  constexpr std::uint32_t kContext = 256;
  Result<bench::ChildRun> run = bench::watch_child(command(kContext, {}, {"decode:0:8"}), seams(), &stop_);
  KAZEIA_TRY(ended());
  if (!run.ok()) return run.error();
  model_hash_ = run->facts["model_hash"];
  return std::move(run->facts);
}

Result<bench::Round> TuneMeasure::measure(const TunePlan& plan, const std::vector<bench::Choices>& configurations,
                                          const bench::Work& work) {
  KAZEIA_TRY(ended());
  const bool proof = work.level == bench::kProofLevel;
  const TuneSteps steps = steps_of(plan, work);
  std::vector<bench::Configuration> sides;
  for (const bench::Choices& choices : configurations) {
    sides.push_back({choices_text(choices), command(plan.context_tokens, choices, steps.words), {}});
  }
  bench::ProtocolOptions options;
  options.least_repetitions = options.most_repetitions = 1;
  options.most_retries = 1;
  options.most_cool_down_s = arguments_.cool_down_s;
  options.first_temperature_c = first_temperature_c_;
  if (arguments_.accept_noise) options.most_foreign_cpu = 1e9;
  const std::uint64_t memory_bytes =
      bench::memory_to_settle(facts_.weight_bytes, read_machine().available_memory_bytes);
  // A first look is no evidence, and short.
  if (proof) options.prepare = [&] { bench::settle(facts_.parts, memory_bytes); };
  bench::ProtocolEvents events;
  events.on_remark = [this](const std::string& sentence) { tell("  " + sentence); };

  Result<bench::Measurement> measured = bench::measure(sides, options, seams(), events, &stop_);
  // Whichever process noticed it first, to a person it is the same.
  KAZEIA_TRY(ended());
  if (!measured.ok()) return measured.error();
  bench::Round round;
  round.moments = std::move(measured->moments);
  round.disturbance = std::move(measured->disturbance);
  for (const bench::Side& side : measured->sides) {
    bench::Sample sample = sample_of(side, steps);
    std::vector<std::string> texts;
    for (const auto& [step, figure] : steps.figures) {
      if (sample.contains(figure)) texts.push_back(figure_text(proof ? figure : step, sample[figure]));
    }
    if (proof) texts.push_back(figure_text(std::string(kPeak), sample[std::string(kPeak)]));
    tell(fmt::format("{:<28} {}", side.label, fmt::join(texts, "  ")));
    const auto failure = side.facts.find("npu_failure");
    if (failure != side.facts.end()) round.disturbance = "the NPU failed: " + failure->second;
    round.samples.push_back(std::move(sample));
  }
  return round;
}

Result<std::string> TuneMeasure::keep(const TunePlan& plan, const bench::Proof& proof) const {
  bench::Record record = begin_record("tune");
  record.model = facts_.identity;
  record.model.hash = model_hash_;
  record.settings["context"] = std::to_string(plan.context_tokens);
  record.settings["tile_cache"] = arguments_.model.weights.tile_cache_directory.empty() ? "no" : "yes";
  record.settings["steps"] = fmt::format("{}", fmt::join(steps_of(plan, bench::Work{}).words, " "));
  record.settings["setting"] = proof.setting.empty() ? "all" : proof.setting;
  // Every setting that differs from its default, on either side.
  for (const auto& [side, choices] : {std::pair{"tuned", &proof.tuned}, std::pair{"default", &proof.without}}) {
    for (const auto& [setting, value] : proof.tuned) {
      const auto found = choices->find(setting);
      record.settings[fmt::format("{}_{}", side, setting)] =
          found == choices->end() ? value_of(arguments_.model, setting) : found->second;
    }
  }
  for (const bench::FigureGain& gain : proof.gains) {
    const bench::Figure instead = bench::make_figure(gain.figure, gain.instead, "default_");
    const bench::Figure tuned = bench::make_figure(gain.figure, gain.tuned, "tuned_");
    record.figures.push_back(instead);
    record.figures.push_back(tuned);
    record.figures.push_back(bench::make_ratio(gain.figure, tuned, instead));
  }
  record.moments = proof.moments;
  record.note = (proof.judged.judgement == bench::Judgement::kWon ? "won: " : "not won: ") + proof.judged.reason;
  if (arguments_.accept_noise) record.note += "; other processes were not looked at";
  bench::seal(record);
  KAZEIA_TRY(bench::Ledger(arguments_.ledger).append(record));
  return record.id;
}

}  // namespace kazeia::cli
