#include "bench/protocol.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bench/statistics.h"

namespace kazeia::bench {
namespace {

constexpr int kRestMs = 500;

class Protocol {
 public:
  Protocol(const std::vector<Configuration>& configurations, const ProtocolOptions& options,
           const MeasuringSeams& seams, const ProtocolEvents& events, const CancelFlag* cancel)
      : configurations_(configurations), options_(options), seams_(seams), events_(events), cancel_(cancel) {}

  Result<Measurement> run();

 private:
  Status warm_up();
  Status repeat_all();
  Result<ChildRun> undisturbed(std::size_t index);
  Status come_to_rest();
  void find_noisiest();
  void drop_incomplete();
  void remark(const std::string& text) const {
    if (events_.on_remark) events_.on_remark(text);
  }

  const std::vector<Configuration>& configurations_;
  const ProtocolOptions& options_;
  const MeasuringSeams& seams_;
  const ProtocolEvents& events_;
  const CancelFlag* cancel_;
  double first_temperature_c_ = 0;
  Interference worst_;  // of what stayed disturbed
  Measurement measurement_;
};

Status Protocol::warm_up() {
  for (std::size_t i = 0; i < configurations_.size(); ++i) {
    const Configuration& configuration = configurations_[i];
    if (configuration.warm_up.empty()) continue;
    remark(fmt::format("warming up: {}", configuration.label));
    const Result<ChildRun> run = watch_child(configuration.warm_up, seams_, cancel_);
    if (!run.ok()) return run.error().within(configuration.label);
    for (const auto& [name, text] : run->facts) measurement_.sides[i].facts[name] = text;
  }
  return {};
}

// Others quiet, and not much warmer than at the beginning; but not for ever.
Status Protocol::come_to_rest() {
  if (options_.prepare) options_.prepare();
  if (options_.most_cool_down_s <= 0) return {};
  const MachineReading began = seams_.read(0);
  for (MachineReading before = began;;) {
    if (cancel_ != nullptr && cancel_->requested()) return Error(ErrorCode::kCancelled, "stopped");
    seams_.sleep(kRestMs);
    const MachineReading now = seams_.read(0);
    const MachineMoment moment = moment_between(before, now);
    const bool cool = moment.temperature_c <= first_temperature_c_ + options_.most_warmer_c;
    if (cool && moment.foreign_cpu <= options_.most_foreign_cpu) return {};
    if (now.seconds - began.seconds >= options_.most_cool_down_s) return {};
    before = now;
  }
}

Result<ChildRun> Protocol::undisturbed(std::size_t index) {
  const Configuration& configuration = configurations_[index];
  std::optional<ChildRun> best;
  for (int attempt = 0; attempt <= options_.most_retries; ++attempt) {
    KAZEIA_TRY(come_to_rest());
    const OnSample tell = [&](const std::string& name, double value, const MachineReading&) {
      if (events_.on_sample) events_.on_sample(configuration.label, name, value);
    };
    Result<ChildRun> run = watch_child(configuration.command, seams_, cancel_, tell);
    if (!run.ok()) return run.error().within(configuration.label);
    if (run->worst.cores <= options_.most_foreign_cpu) return run;
    const bool again = attempt < options_.most_retries && worst_.cores == 0;
    remark(sentence(run->worst) + (again ? ": once more" : ""));
    if (!best || run->worst.cores < best->worst.cores) best = std::move(*run);
    if (!again) break;
  }
  if (best->worst.cores > worst_.cores) worst_ = best->worst;
  return std::move(*best);
}

Status Protocol::repeat_all() {
  if (events_.on_repetition) events_.on_repetition(measurement_.repetitions);
  for (std::size_t i = 0; i < configurations_.size(); ++i) {
    KAZEIA_ASSIGN(const ChildRun run, undisturbed(i));
    Side& side = measurement_.sides[i];
    for (const auto& [name, value] : run.samples) side.samples.add(name, value);
    for (const auto& [name, text] : run.facts) side.facts[name] = text;
    measurement_.moments.push_back(run.before);
    measurement_.moments.push_back(run.during);
  }
  ++measurement_.repetitions;
  return {};
}

void Protocol::find_noisiest() {
  measurement_.worst_variation = 0;
  measurement_.noisiest.clear();
  for (const Side& side : measurement_.sides) {
    for (const auto& [name, samples] : side.samples.rows()) {
      if (std::string_view(name).starts_with("energy_")) continue;
      const double variation = coefficient_of_variation(samples);
      if (variation <= measurement_.worst_variation) continue;
      measurement_.worst_variation = variation;
      measurement_.noisiest = (measurement_.sides.size() > 1 ? side.label + " " : "") + name;
    }
  }
}

void Protocol::drop_incomplete() {
  for (Side& side : measurement_.sides) {
    SampleTable complete;
    for (const auto& [name, samples] : side.samples.rows()) {
      if (samples.size() != static_cast<std::size_t>(measurement_.repetitions)) {
        remark(fmt::format("{} {} was measured in {} of {} repetitions and is left out", side.label, name,
                           samples.size(), measurement_.repetitions));
        continue;
      }
      for (const double sample : samples) complete.add(name, sample);
    }
    side.samples = std::move(complete);
  }
}

Result<Measurement> Protocol::run() {
  for (const Configuration& configuration : configurations_)
    measurement_.sides.push_back({configuration.label, {}, {}});
  first_temperature_c_ =
      options_.first_temperature_c > 0 ? options_.first_temperature_c : seams_.read(0).temperature_c;
  KAZEIA_TRY(warm_up());
  while (measurement_.repetitions < options_.most_repetitions) {
    KAZEIA_TRY(repeat_all());
    find_noisiest();
    if (measurement_.repetitions < options_.least_repetitions) continue;
    // More repetitions make nothing good again that was disturbed.
    if (worst_.cores > 0 || measurement_.worst_variation <= options_.most_variation) break;
  }
  drop_incomplete();
  find_noisiest();
  if (worst_.cores > 0) measurement_.disturbance = sentence(worst_);
  return std::move(measurement_);
}

}  // namespace

std::string sentence(const Interference& interference) {
  return fmt::format("other processes used {:.1f} cores during {}", interference.cores,
                     interference.during.empty() ? "a repetition" : interference.during);
}

Result<Measurement> measure(const std::vector<Configuration>& configurations, const ProtocolOptions& options,
                            const MeasuringSeams& seams, const ProtocolEvents& events, const CancelFlag* cancel) {
  return Protocol(configurations, options, seams, events, cancel).run();
}

}  // namespace kazeia::bench
