// The protocol with children and a machine that are made up: time passes only where a test says so.

#include "bench/protocol.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a child says, and what happens on the machine while it measures decode_0.
struct Script {
  std::vector<double> decodes;         // one a run, the last one again and again
  std::vector<double> foreign_cores;   // as decodes; empty: none
  std::vector<double> degrees_warmer;  // that a run leaves behind, as decodes
  std::size_t runs = 0;

  static double at(const std::vector<double>& values, std::size_t i) {
    return values.empty() ? 0 : values[std::min(i, values.size() - 1)];
  }
};

class FakeLab {
 public:
  MeasuringSeams seams() {
    return {[this](const std::vector<std::string>& command, const ChildEvents& events, const CancelFlag* cancel) {
              return run(command, events, cancel);
            },
            [this](pid_t) { return now; },
            [this](int milliseconds) {
              pass(milliseconds / 1000.0, foreign_at_rest);
              now.temperature_c = std::max(40.0, now.temperature_c - 1);
            }};
  }

  Script& operator[](const std::string& program) { return scripts_[program]; }

  Result<Measurement> measure(const std::vector<std::string>& programs, const ProtocolOptions& options = {},
                              const CancelFlag* cancel = nullptr) {
    std::vector<Configuration> configurations;
    for (const std::string& program : programs) configurations.push_back({program, {program}, {}});
    ProtocolEvents events;
    events.on_remark = [this](const std::string& text) { remarks.push_back(text); };
    return kazeia::bench::measure(configurations, options, seams(), events, cancel);
  }

  std::vector<std::string> order;  // of the children
  std::vector<std::string> remarks;
  MachineReading now;
  double foreign_at_rest = 0;

 private:
  void pass(double seconds, double foreign_cores) {
    now.seconds += seconds;
    now.busy_s += seconds * foreign_cores;
  }

  Status run(const std::vector<std::string>& command, const ChildEvents& events, const CancelFlag* cancel) {
    order.push_back(command[0]);
    if (cancel != nullptr && cancel->requested()) return Error(ErrorCode::kCancelled, "stopped");
    if (command[0] == "broken") return Error(ErrorCode::kEngine, "the child failed");
    Script& script = scripts_[command[0]];
    const std::size_t i = script.runs++;
    pass(8, 0);
    events.on_line(R"({"begin":"decode_0","tokens":32})");
    pass(2, Script::at(script.foreign_cores, i));
    now.busy_s += 2;  // the child's own work
    now.own_s += 2;
    events.on_line(fmt::format(R"({{"name":"decode_0","value":{}}})", Script::at(script.decodes, i)));
    events.on_line(R"({"fact":"route","text":"cpu"})");
    now.temperature_c = std::max(40.0, now.temperature_c) + Script::at(script.degrees_warmer, i);
    return {};
  }

  std::map<std::string, Script> scripts_;
};

TEST(Protocol, TakesTurnsAndStopsWhenTheFiguresRepeat) {
  FakeLab lab;
  lab["a"].decodes = {20, 20.2, 19.9};
  lab["b"].decodes = {10, 10.1, 9.9};
  const auto measurement = lab.measure({"a", "b"});
  ASSERT_TRUE(measurement.ok());
  EXPECT_THAT(lab.order, ElementsAre("a", "b", "a", "b", "a", "b"));
  EXPECT_EQ(measurement->repetitions, 3);
  EXPECT_THAT(*measurement->sides[0].samples.find("decode_0"), ElementsAre(20, 20.2, 19.9));
  EXPECT_THAT(*measurement->sides[1].samples.find("decode_0"), ElementsAre(10, 10.1, 9.9));
  EXPECT_EQ(measurement->sides[1].facts.at("route"), "cpu");
  EXPECT_EQ(measurement->disturbance, "");
  EXPECT_EQ(measurement->moments.size(), 12U);
  EXPECT_LT(measurement->worst_variation, 0.05);
}

TEST(Protocol, GoesOnWhileAFigureVariesAndNamesIt) {
  FakeLab lab;
  lab["a"].decodes = {20, 30, 20, 30, 20, 30};
  const auto measurement = lab.measure({"a"});
  ASSERT_TRUE(measurement.ok());
  EXPECT_EQ(measurement->repetitions, 6);
  EXPECT_EQ(measurement->noisiest, "decode_0");
  EXPECT_GT(measurement->worst_variation, 0.05);

  FakeLab calmer;
  calmer["a"].decodes = {20, 22, 20, 20};
  EXPECT_EQ(calmer.measure({"a"})->repetitions, 4);  // 5.6 % after three, 4.9 % after four
}

TEST(Protocol, RepeatsWhatAnotherProcessDisturbed) {
  FakeLab lab;
  lab["a"].decodes = {20, 5, 20, 20};
  lab["a"].foreign_cores = {0, 1.5, 0, 0};
  const auto measurement = lab.measure({"a"});
  ASSERT_TRUE(measurement.ok());
  EXPECT_EQ(lab.order.size(), 4U);
  EXPECT_THAT(*measurement->sides[0].samples.find("decode_0"), ElementsAre(20, 20, 20));
  EXPECT_EQ(measurement->disturbance, "");
  EXPECT_THAT(lab.remarks, ElementsAre("other processes used 1.5 cores during decode_0: once more"));
}

TEST(Protocol, SaysByHowMuchItStayedDisturbedAndStopsRepeating) {
  FakeLab lab;
  lab["a"].decodes = {20, 5, 20, 2, 7};
  lab["a"].foreign_cores = {1.2, 0.8, 1.6, 0.9};
  const auto measurement = lab.measure({"a"});
  ASSERT_TRUE(measurement.ok());
  // The best of three tries, then each of the others once; no more than three repetitions, though they vary.
  EXPECT_THAT(*measurement->sides[0].samples.find("decode_0"), ElementsAre(5, 2, 7));
  EXPECT_EQ(lab.order.size(), 5U);
  EXPECT_EQ(measurement->disturbance, "other processes used 0.9 cores during decode_0");
}

TEST(Protocol, LeavesALittleOfOthersAlone) {
  FakeLab lab;
  lab["a"].decodes = {20};
  lab["a"].foreign_cores = {0.2};
  EXPECT_EQ(lab.measure({"a"})->disturbance, "");
  EXPECT_EQ(lab.order.size(), 3U);
}

TEST(Protocol, WaitsUntilTheMachineHasCooledDown) {
  FakeLab lab;
  lab.now.temperature_c = 40;
  lab["a"].decodes = {20};
  lab["a"].degrees_warmer = {15, 10};
  ASSERT_TRUE(lab.measure({"a"}).ok());
  // Three runs of 10 s, half a second before the first, and down from 55 to 45 degrees before the others, two a second.
  EXPECT_DOUBLE_EQ(lab.now.seconds, 3 * 10 + 0.5 + 2 * 5);
}

TEST(Protocol, DoesNotWaitForever) {
  FakeLab lab;
  lab.foreign_at_rest = 1;
  lab["a"].decodes = {20};
  ProtocolOptions options;
  options.most_cool_down_s = 4;
  ASSERT_TRUE(lab.measure({"a"}, options).ok());
  EXPECT_DOUBLE_EQ(lab.now.seconds, 3 * (10 + 4));
}

TEST(Protocol, WarmsUpOnceAndForgetsIt) {
  FakeLab lab;
  lab["cold"].decodes = {1};
  lab["a"].decodes = {20};
  const auto measurement = measure({{"a", {"a"}, {"cold"}}}, {}, lab.seams(), ProtocolEvents{}, nullptr);
  ASSERT_TRUE(measurement.ok());
  EXPECT_THAT(lab.order, ElementsAre("cold", "a", "a", "a"));
  EXPECT_THAT(*measurement->sides[0].samples.find("decode_0"), ElementsAre(20, 20, 20));
}

TEST(Protocol, StopsWithTheChildsErrorOrACancel) {
  FakeLab lab;
  const auto broken = lab.measure({"broken"});
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message(), HasSubstr("broken: the child failed"));
  CancelFlag cancel;
  cancel.request();
  lab.order.clear();
  const auto cancelled = lab.measure({"a"}, {}, &cancel);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code(), ErrorCode::kCancelled);
  EXPECT_THAT(lab.order, IsEmpty());
}

// Real children, the real machine.
TEST(WatchedChild, IsHeardWithTheMachineBesideIt) {
  MachineReader reader;
  std::vector<std::string> heard;
  const auto run =
      watch_child({"/bin/sh", "-c",
                   R"(echo '{"fact":"route","text":"cpu"}'; echo noise; echo '{"begin":"turn"}'
                                   echo '{"name":"turn_ttft_ms","value":5}'; echo '{"name":"turn_decode","value":9}')"},
                  real_seams(reader), nullptr, [&](const std::string& name, double, const MachineReading& at) {
                    heard.push_back(name);
                    EXPECT_GT(at.seconds, 0);
                  });
  ASSERT_TRUE(run.ok());
  EXPECT_THAT(heard, ElementsAre("turn_ttft_ms", "turn_decode"));
  EXPECT_EQ(run->facts.at("route"), "cpu");
  EXPECT_EQ(run->samples.size(), 2U);
  EXPECT_GT(run->during.seconds, run->before.seconds);
  EXPECT_GT(run->during.free_memory_bytes, 0U);
  // Too short to say anything about others.
  EXPECT_EQ(run->worst.cores, 0);
}

TEST(WatchedChild, HasItsEnergyPerTokenWhereTheMachineTells) {
  MachineReading now;
  now.joules = 100;
  MeasuringSeams seams;
  seams.read = [&](pid_t) { return now; };
  seams.run = [&](const std::vector<std::string>&, const ChildEvents& events, const CancelFlag*) -> Status {
    now.joules = 150;  // loading
    events.on_line(R"({"begin":"decode_0","tokens":32})");
    now.joules = 214;
    events.on_line(R"({"name":"decode_0","value":10})");
    now.joules = 300;
    events.on_line(R"({"name":"peak_rss_bytes","value":1000})");
    return {};
  };
  const auto run = watch_child({"child"}, seams, nullptr);
  ASSERT_TRUE(run.ok());
  EXPECT_THAT(run->samples, ElementsAre(std::pair("decode_0", 10.0), std::pair("energy_decode_0", 2.0),
                                        std::pair("peak_rss_bytes", 1000.0)));
}

}  // namespace
}  // namespace kazeia::bench
