#include "bench/watched_child.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "bench/child_line.h"

namespace kazeia::bench {
namespace {

// The kernel counts CPU time in hundredths of a second: a shorter look at it says more about its clock.
constexpr double kShortestSeconds = 1;
constexpr double kLookEverySeconds = 1;

class Watch {
 public:
  Watch(const MeasuringSeams& seams, const OnSample& on_sample) : seams_(seams), on_sample_(on_sample) {
    first_ = last_ = seams_.read(0);
    run_.before = moment_between(first_, first_);
  }

  ChildEvents events() {
    return {[this](pid_t child) { child_ = child; }, [this](std::string_view text) { hear(text); },
            [this] { look_now_and_then(); }};
  }

  ChildRun finish() {
    // After the child's end its time is this process's own; before it, the reading may be as old as a second.
    const MachineReading end = seams_.read(0);
    const MachineMoment whole = moment_between(first_, end);
    run_.during.seconds = whole.seconds;
    run_.during.load_average = whole.load_average;
    run_.during.foreign_cpu = whole.foreign_cpu;
    run_.during.free_memory_bytes = last_.free_memory_bytes;
    run_.during.throttled |= whole.throttled;
    run_.during.temperature_c = std::max(run_.during.temperature_c, end.temperature_c);
    run_.during.clock_mhz = looks_ > 0 ? clock_sum_ / looks_ : end.clock_mhz;
    if (end.seconds - first_.seconds >= kShortestSeconds && whole.foreign_cpu > run_.worst.cores) {
      run_.worst = {whole.foreign_cpu, ""};
    }
    return std::move(run_);
  }

 private:
  const MachineReading& look() {
    last_ = seams_.read(child_);
    run_.during.temperature_c = std::max(run_.during.temperature_c, last_.temperature_c);
    run_.during.throttled |= last_.cooling;
    clock_sum_ += last_.clock_mhz;
    ++looks_;
    return last_;
  }

  void look_now_and_then() {
    if (since_look_.elapsed_ms() < kLookEverySeconds * 1000) return;
    since_look_.restart();
    look();
  }

  void hear(std::string_view text) {
    auto line = parse_child_line(text);
    if (!line) return;
    switch (line->kind) {
      case ChildLine::Kind::kFact:
        run_.facts[line->name] = line->text;
        return;
      case ChildLine::Kind::kBegin:
        begun_ = std::move(*line);
        begun_at_ = look();
        return;
      case ChildLine::Kind::kSample:
        break;
    }
    const MachineReading& now = look();
    run_.samples.emplace_back(line->name, line->value);
    if (begun_) end_piece(now);
    if (on_sample_) on_sample_(line->name, line->value, now);
  }

  void end_piece(const MachineReading& now) {
    const double foreign = moment_between(begun_at_, now).foreign_cpu;
    if (now.seconds - begun_at_.seconds >= kShortestSeconds && foreign > run_.worst.cores) {
      run_.worst = {foreign, begun_->name};
    }
    if (begun_->tokens > 0 && now.joules && begun_at_.joules && *now.joules > *begun_at_.joules) {
      run_.samples.emplace_back("energy_" + begun_->name,
                                (*now.joules - *begun_at_.joules) / static_cast<double>(begun_->tokens));
    }
    begun_.reset();
  }

  const MeasuringSeams& seams_;
  const OnSample& on_sample_;
  pid_t child_ = 0;
  ChildRun run_;
  MachineReading first_, last_, begun_at_;
  std::optional<ChildLine> begun_;
  double clock_sum_ = 0;
  int looks_ = 0;
  Stopwatch since_look_;
};

}  // namespace

MeasuringSeams real_seams(MachineReader& reader) {
  MeasuringSeams seams;
  seams.run = [](const std::vector<std::string>& command, const ChildEvents& events, const CancelFlag* cancel) {
    return run_child(command, events, cancel);
  };
  seams.read = [&reader](pid_t child) { return reader.read(child); };
  seams.sleep = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  return seams;
}

Result<ChildRun> watch_child(const std::vector<std::string>& command, const MeasuringSeams& seams,
                             const CancelFlag* cancel, const OnSample& on_sample) {
  Watch watch(seams, on_sample);
  KAZEIA_TRY(seams.run(command, watch.events(), cancel));
  return watch.finish();
}

}  // namespace kazeia::bench
