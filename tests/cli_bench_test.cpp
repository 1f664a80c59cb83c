// `kazeia bench` on the mini models, with few and short steps. How fast they are is not looked at: only that what was
// asked for is measured, told completely, and kept or refused.

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/record.h"
#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class Bench : public ::testing::Test {
 protected:
  std::vector<std::string> bench(const std::string& model, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"bench",
                                       model_path(model),
                                       "--depths",
                                       "0,64",
                                       "--prefill",
                                       "64",
                                       "--repetitions",
                                       "3",
                                       "--threads",
                                       "1",
                                       "--route",
                                       "cpu",
                                       "--accept-noise",
                                       "--cool-down",
                                       "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // Nothing is written to the user's own folders.
  Outcome run(const std::vector<std::string>& arguments, Conditions conditions = {}) const {
    conditions.environment.push_back("KAZEIA_SESSIONS=" + scratch_.path("sessions"));
    conditions.environment.push_back("KAZEIA_PROFILE=" + scratch_.path("profile.json"));
    return cli_test::run(arguments, conditions);
  }
  // Read back as strictly as the ledger does.
  bench::Record record(const std::string& line) const {
    const Result<bench::Record> parsed = bench::record_from_json(line);
    EXPECT_TRUE(parsed.ok()) << line;
    return parsed.ok() ? *parsed : bench::Record{};
  }
  bench::Record measured(const std::vector<std::string>& arguments, Conditions conditions = {}) const {
    const Outcome outcome = run(arguments, std::move(conditions));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return record(outcome.out);
  }
  static std::vector<std::string> names(const bench::Record& record) {
    std::vector<std::string> found;
    for (const bench::Figure& figure : record.figures) found.push_back(figure.name);
    return found;
  }

  const Scratch scratch_;
};

TEST_F(Bench, TellsEveryFigureWithItsSamplesAndWhereTheyComeFrom) {
  const Outcome outcome = run(bench(kHybrid, {"--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_GT(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 50);  // for people, too
  const bench::Record record = this->record(nlohmann::ordered_json::parse(outcome.out).dump());
  EXPECT_EQ(record.kind, "bench");
  EXPECT_THAT(names(record), IsSupersetOf({"load_ms", "first_token_ms", "ttft_ms", "prefill_64", "decode_0",
                                           "decode_64", "peak_rss_bytes", "turn_ttft_ms", "turn_peak_rss_bytes",
                                           "plan_weights_bytes", "plan_kv_cache_bytes", "plan_recurrent_state_bytes"}));
  for (const bench::Figure& figure : record.figures) {
    EXPECT_EQ(figure.samples.size(), 3U) << figure.name;
    for (const double sample : figure.samples) EXPECT_GT(sample, 0) << figure.name;
  }
  EXPECT_EQ(record.figure("load_ms")->unit, "ms");
  EXPECT_FALSE(record.figure("load_ms")->higher_is_better);
  EXPECT_EQ(record.figure("decode_64")->unit, "tok/s");
  EXPECT_EQ(record.moments.size(), 6U);
  EXPECT_EQ(record.model.file, kHybrid);
  EXPECT_EQ(record.model.architecture, "qwen35");
  EXPECT_EQ(record.model.hash.size(), 32U);
  EXPECT_TRUE(record.model.tensor_bytes.contains("Q4_0"));
  EXPECT_EQ(record.settings.at("threads"), "1");
  EXPECT_EQ(record.settings.at("route"), "cpu");
  EXPECT_EQ(record.settings.at("depths"), "0,64");
  EXPECT_THAT(record.command, Contains(kHybrid));
  EXPECT_EQ(record.command.front(), "kazeia");
  EXPECT_TRUE(record.commit.empty() || record.commit.size() == 40) << record.commit;
  EXPECT_EQ(record.machine.id.size(), 8U);
  EXPECT_NE(record.compiler, "");
  EXPECT_THAT(record.upstream_version, HasSubstr("llama.cpp"));
}

TEST_F(Bench, ShowsATableAndAppendsLinesToAFile) {
  const std::string file = scratch_.path("records.jsonl");
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = run(bench(kDense, {"--no-turns", "--record", file}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith(kDense + ": qwen3, "));
    EXPECT_THAT(outcome.out, HasSubstr("95 % interval"));
    EXPECT_THAT(outcome.out, HasSubstr("\ndecode_64 "));
    EXPECT_THAT(outcome.out, Not(HasSubstr("turn_")));
    EXPECT_THAT(outcome.err, HasSubstr("repetition 3 (3 to 3)"));
  }
  std::istringstream lines(read_file(file));
  std::string first, second, end;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  EXPECT_FALSE(std::getline(lines, end));
  EXPECT_NE(record(first).id, record(second).id);
  EXPECT_EQ(record(first).settings, record(second).settings);
  EXPECT_EQ(record(first).settings.at("turns"), "none");
}

TEST_F(Bench, AddsItsRecordToALedgerThatListsIt) {
  const std::string folder = scratch_.path("ledger");
  const Outcome added = run(bench(kDense, {"--no-turns", "--add", "--ledger", folder, "--record", "-"}));
  ASSERT_EQ(added.exit_code, 0) << added.err;
  const bench::Record record = this->record(added.out);
  EXPECT_THAT(added.err, HasSubstr(record.id + " is in the ledger"));
  const Outcome listed = run({"ledger", "list", "--ledger", folder, "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr(record.id));
}

TEST_F(Bench, ShowsANoisyRecordAndDoesNotAddIt) {
  const std::string folder = scratch_.path("ledger");
  std::vector<std::string> arguments =
      bench(kDense, {"--no-turns", "--add", "--ledger", folder, "--most-variation", "0.0000001", "--record", "-"});
  std::erase(arguments, "--accept-noise");
  const Outcome refused = run(arguments);
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_THAT(refused.err, HasSubstr("is not added to the ledger: "));
  EXPECT_FALSE(record(refused.out).figures.empty());
  EXPECT_THAT(scratch_.names(), Not(Contains("ledger")));

  arguments.emplace_back("--accept-noise");
  const Outcome kept = run(arguments);
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(record(kept.out).note, HasSubstr("kept with noise: "));
  EXPECT_THAT(scratch_.names(), Contains("ledger"));
}

TEST_F(Bench, ShowsARowForEachRouteAndWhyOneIsMissing) {
  std::vector<std::string> arguments = bench(kDense, {"--no-turns", "--routes", "--record", "-"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--route"),
                  std::find(arguments.begin(), arguments.end(), "--route") + 2);
  // Nobody's driver is in an empty folder.
  Conditions nowhere;
  nowhere.environment.push_back("LD_LIBRARY_PATH=" + scratch_.path("none"));
  const bench::Record record = measured(arguments, nowhere);
  EXPECT_EQ(record.kind, "routes");
  EXPECT_EQ(record.settings.at("route_cpu"), "used");
  EXPECT_EQ(record.settings.at("route_npu-prefill"), "no NPU");
  EXPECT_EQ(record.settings.at("route_npu-only"), "no NPU");
  EXPECT_THAT(names(record), Contains("cpu_decode_64"));
  EXPECT_THAT(names(record), Not(Contains("npu-only_decode_64")));
  EXPECT_THAT(record.note, HasSubstr("npu-prefill: the NPU is not used: "));
}

TEST_F(Bench, SoaksForAsLongAsItIsTold) {
  const bench::Record record =
      measured({"bench", model_path(kHybrid), "--soak", "3s", "--threads", "1", "--route", "cpu", "--record", "-"});
  EXPECT_EQ(record.kind, "soak");
  EXPECT_THAT(names(record), IsSupersetOf({"soak_decode", "soak_ttft_ms", "soak_rss_bytes"}));
  const std::size_t intervals = record.figure("soak_decode")->samples.size();
  EXPECT_EQ(record.moments.size(), intervals);
  EXPECT_EQ(record.settings.at("soak_seconds"), "3");
  // On a machine that is busy with other tests, there may be too few intervals for a slope.
  if (intervals >= 4) {
    const bench::Figure* slope = record.figure("soak_rss_slope_bytes_per_hour");
    ASSERT_NE(slope, nullptr);
    EXPECT_LE(slope->low, slope->median);
    EXPECT_LE(slope->median, slope->high);
    EXPECT_NE(record.figure("soak_decode_slope"), nullptr);
  }
}

TEST_F(Bench, RefusesWhatItCannotMeasure) {
  const auto expect_refused = [&](const std::vector<std::string>& arguments, int exit_code, const std::string& reason) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_EQ(outcome.out, "");
  };
  const std::string model = model_path(kDense);
  expect_refused({"bench", "no such model.gguf"}, 3, "no file at");
  expect_refused({"bench", model, "--depths", "0,4000", "--context", "1024"}, 2, "--depths 4000 does not fit");
  expect_refused({"bench", model, "--prefill", "0"}, 2, "--prefill");
  expect_refused({"bench", model, "--soak", "soon"}, 2, "is no duration");
  expect_refused({"bench", model, "--soak", "60m", "--routes"}, 2, "--soak");
  expect_refused({"bench", model, "--baseline", "yesterday"}, 2, "--baseline");
}

TEST_F(Bench, LeavesNothingBehindOnCtrlC) {
  const std::string file = scratch_.path("records.jsonl");
  Conditions conditions;
  // In the middle of something that takes a minute.
  conditions.interrupt_after = std::chrono::milliseconds(1500);
  const Outcome outcome = run({"bench", model_path(kDense), "--soak", "60s", "--threads", "1", "--route", "cpu",
                               "--add", "--ledger", scratch_.path("ledger"), "--record", file},
                              conditions);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.err, HasSubstr("stopped by the user"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(scratch_.names(), Not(Contains("ledger")));
  EXPECT_THAT(scratch_.names(), Not(Contains("records.jsonl")));
}

}  // namespace
}  // namespace kazeia::cli_test
