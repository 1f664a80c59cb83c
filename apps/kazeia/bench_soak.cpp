// A long run of chat turns in one process: does it get slower, does it grow?

#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/figures.h"
#include "bench/protocol.h"
#include "bench/slope.h"
#include "bench/statistics.h"
#include "bench/watched_child.h"
#include "bench_runs.h"

namespace kazeia::cli {
namespace {

// Until caches are full and the machine is warm, everything rises or falls: slopes begin behind a tenth of the run.
constexpr std::size_t kSettlingShare = 10;

// One sample an interval, and when each interval ended.
struct SoakSeries {
  std::vector<double> hours;
  bench::SampleTable samples;
  std::vector<bench::MachineMoment> moments;
};

// A record's figure has an interval that lies within its samples: those of a slope are the value and the ends of its
// 95 % interval.
bench::Figure slope_figure(const std::string& name, const std::string& unit, bool higher_is_better,
                           const SoakSeries& series, const std::vector<double>& values) {
  const std::size_t skipped = values.size() / kSettlingShare;
  const bench::Slope slope = bench::slope(std::span(series.hours).subspan(skipped), std::span(values).subspan(skipped));
  bench::Figure figure;
  figure.name = name;
  figure.unit = unit;
  figure.higher_is_better = higher_is_better;
  figure.samples = {slope.low, slope.value, slope.high};
  bench::summarise(figure);
  return figure;
}

void add_figures(const SoakSeries& series, bench::Record& record) {
  for (const auto& [name, samples] : series.samples.rows()) {
    bench::Figure figure = bench::make_figure(name, samples);
    if (name == "soak_temperature_c") {
      figure.unit = "C";
      figure.higher_is_better = false;
    }
    record.figures.push_back(std::move(figure));
  }
  const std::vector<double>* decode = series.samples.find("soak_decode");
  const std::vector<double>* rss = series.samples.find("soak_rss_bytes");
  // A slope needs three points to have an interval.
  if (decode == nullptr || rss == nullptr || decode->size() - decode->size() / kSettlingShare < 3) {
    record.note = "too short for slopes";
    return;
  }
  record.figures.push_back(slope_figure("soak_decode_slope", "tok/s/h", true, series, *decode));
  record.figures.push_back(slope_figure("soak_rss_slope_bytes_per_hour", "bytes/h", false, series, *rss));
}

}  // namespace

Result<BenchRun> run_soak(const Workbench& work) {
  BenchRun run = begin_run(work, "soak");
  bench::MachineReader reader;
  const bench::MeasuringSeams seams = bench::real_seams(reader);
  const Route route = work.arguments.route.route;
  KAZEIA_ASSIGN(bench::ChildRun warm, bench::watch_child(warm_up_command(work, route), seams, &work.cancel));
  run.record.model.hash = warm.facts["model_hash"];

  SoakSeries series;
  bench::MachineReading before = seams.read(0);
  const double began = before.seconds;
  const bench::OnSample on_sample = [&](const std::string& name, double value, const bench::MachineReading& now) {
    if (!name.starts_with("soak_")) return;
    series.samples.add(name, value);
    if (name != "soak_decode") return;  // the last one of an interval
    series.moments.push_back(bench::moment_between(before, now));
    series.hours.push_back((now.seconds - began) / 3600);
    if (now.temperature_c > 0) series.samples.add("soak_temperature_c", now.temperature_c);
    before = now;
    fmt::print(stderr, "  {:>6.0f} s  {:.1f} tok/s  first token {:.0f} ms\n", now.seconds - began, value,
               series.samples.find("soak_ttft_ms")->back());
  };
  KAZEIA_ASSIGN(bench::ChildRun told, bench::watch_child(with_steps(work, probe_command(work, route), work.plan.steps),
                                                         seams, &work.cancel, on_sample));
  if (series.hours.empty()) {
    const std::string reason = told.facts["no_chat"];
    return Error(ErrorCode::kUnsupported,
                 reason.empty() ? "the model's answers are too short to measure" : "no chat to soak: " + reason,
                 "Use a model that can chat");
  }
  bench::Record& record = run.record;
  record.settings["route"] = told.facts["route"];
  add_figures(series, record);
  record.moments = std::move(series.moments);
  if (told.during.foreign_cpu > work.arguments.protocol.most_foreign_cpu) {
    record.disturbance = bench::sentence(bench::Interference{told.during.foreign_cpu, "the soak"});
  }
  if (!told.facts["npu_failure"].empty()) record.disturbance = "the NPU failed: " + told.facts["npu_failure"];
  return run;
}

}  // namespace kazeia::cli
