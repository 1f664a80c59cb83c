// `kazeia tune` on a mini model with short prompts and seconds of time. What is faster on the machine that runs this is
// not looked at: only that it ends in time, and that what it writes is proven.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/identity.h"
#include "bench/ledger.h"
#include "bench/tuned_profile.h"
#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

class Tune : public ::testing::Test {
 protected:
  std::vector<std::string> tune(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"tune", model_path(kDense), "--depth",  "128",    "--cool-down",
                                       "0",    "--accept-noise",   "--ledger", ledger(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Outcome run(const std::vector<std::string>& arguments, Conditions conditions = {}) const {
    conditions.environment.push_back("KAZEIA_SESSIONS=" + scratch_.path("sessions"));
    conditions.environment.push_back("KAZEIA_PROFILE=" + scratch_.path("profile.json"));
    conditions.environment.push_back("KAZEIA_TUNED=" + tuned());
    return cli_test::run(arguments, conditions);
  }
  std::string tuned() const { return scratch_.path("tuned"); }
  std::string ledger() const { return scratch_.path("ledger"); }
  Json parsed(const Outcome& outcome) const {
    Json json = Json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << outcome.all();
    return json;
  }
  std::vector<bench::Record> records() const {
    if (!std::filesystem::exists(ledger())) return {};
    const auto read = bench::Ledger(ledger()).read_all();
    EXPECT_TRUE(read.ok());
    return read.ok() ? *read : std::vector<bench::Record>();
  }
  std::string hash() const { return parsed(run({"tune", model_path(kDense), "--show", "--json"}))["model_hash"]; }
  // Whatever it came to: the profile has proven choices or is not there, and the ledger is whole.
  void expect_evidence() const {
    const std::vector<bench::Record> kept = records();
    for (const bench::Record& record : kept) {
      EXPECT_EQ(record.kind, "tune");
      EXPECT_TRUE(record.settings.contains("setting"));
      EXPECT_FALSE(record.figures.empty());
    }
    const bench::LoadedTunedProfile loaded = bench::read_tuned(tuned(), bench::machine_identity().id, hash());
    EXPECT_EQ(loaded.note, "");
    if (!loaded.profile) return;
    EXPECT_FALSE(loaded.profile->choices.empty());
    for (const bench::TunedChoice& choice : loaded.profile->choices) {
      EXPECT_GT(choice.gain.low, 1);
      const auto record =
          std::find_if(kept.begin(), kept.end(), [&](const auto& one) { return one.id == choice.record; });
      ASSERT_NE(record, kept.end()) << choice.setting;
      EXPECT_EQ(record->settings.at("tuned_" + choice.setting), choice.value);
      EXPECT_EQ(record->settings.at("default_" + choice.setting), choice.instead);
      ASSERT_NE(record->figure("ratio_" + choice.figure), nullptr);
      EXPECT_NE(record->figure("default_" + choice.figure), nullptr);
      EXPECT_NE(record->figure("tuned_" + choice.figure), nullptr);
    }
  }

  const Scratch scratch_;
};

TEST_F(Tune, EndsInTimeWithWhatIsProvenAndNothingElse) {
  const auto began = std::chrono::steady_clock::now();
  const Outcome outcome = run(tune({"--minutes", "0.2"}));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parsed(outcome);
  EXPECT_THAT(outcome.err, HasSubstr(" left  warming up"));
  int chosen = 0;
  for (const Json& setting : json["settings"]) {
    if (!setting["chosen"].get<bool>()) {
      EXPECT_NE(setting["reason"], "") << setting;
      continue;
    }
    ++chosen;
    EXPECT_GT(setting["gain"]["low"].get<double>(), 1) << setting;
  }
  EXPECT_EQ(json["profile"] != "", chosen > 0);
  EXPECT_EQ(!json["whole"].empty(), chosen > 0);
  expect_evidence();
  EXPECT_TRUE(records().empty() || run({"ledger", "list", "--ledger", ledger()}).exit_code == 0);
}

TEST_F(Tune, KeepsTheLedgerOfEveryProof) {
  // The one proof is of what is only shown: it is made whatever comes out, in seconds; the minutes are for busy machines.
  const Outcome outcome = run(tune({"--minutes", "20", "--only", "kv"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parsed(outcome);
  ASSERT_EQ(json["shown"].size(), 1U) << outcome.all();
  EXPECT_EQ(json["settings"][0]["chosen"], false);
  EXPECT_THAT(json["settings"][0]["reason"].get<std::string>(), HasSubstr("it changes answers"));
  const std::vector<bench::Record> kept = records();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].id, json["shown"][0]["record"]);
  EXPECT_EQ(kept[0].settings.at("tuned_kv"), "q8_0");
  EXPECT_EQ(kept[0].settings.at("default_kv"), "f16");
  for (const char* figure : {"decode_128", "prefill_128", "prefill_64_at_256", "peak_rss_bytes", "load_ms"}) {
    ASSERT_NE(kept[0].figure(std::string("ratio_") + figure), nullptr) << figure;
    EXPECT_EQ(kept[0].figure(std::string("tuned_") + figure)->samples.size(), 4U);
  }
  EXPECT_EQ(run({"ledger", "show", kept[0].id, "--ledger", ledger()}).exit_code, 0);
  expect_evidence();
}

TEST_F(Tune, StoppedKeepsAValidProfileOrNone) {
  for (const int milliseconds : {1500, 6000}) {
    Conditions conditions;
    conditions.interrupt_after = std::chrono::milliseconds(milliseconds);
    const Outcome outcome = run(tune({"--minutes", "5"}), conditions);
    EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped"));
    expect_evidence();
  }
}

TEST_F(Tune, TellsWhatItWouldSearchAndDoesNothing) {
  const Outcome outcome = run(tune({"--dry-run", "--minutes", "3"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parsed(outcome);
  EXPECT_EQ(json["minutes"], 3);
  std::vector<std::string> settings;
  for (const Json& setting : json["settings"]) settings.push_back(setting["setting"]);
  EXPECT_THAT(settings, Contains("poll"));
  EXPECT_THAT(settings, Contains("ubatch"));
  EXPECT_THAT(scratch_.names(), IsEmpty());
}

TEST_F(Tune, SearchesOnlyWhatIsAskedFor) {
  const Outcome outcome = run(tune({"--dry-run", "--only", "poll,flash_attention"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(parsed(outcome)["settings"].size(), 2U);
}

TEST_F(Tune, RefusesBeforeItMeasures) {
  const auto expect_refused = [&](const std::vector<std::string>& arguments, int exit_code, const std::string& reason) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_THAT(outcome.err, Not(HasSubstr("warming up")));
    EXPECT_EQ(outcome.out, "");
  };
  expect_refused(tune({"--only", "moon_phase"}), 2, "there is no setting 'moon_phase'");
  expect_refused(tune({"--only", "context"}), 2, "is not searched");
  expect_refused(tune({"--minutes", "soon"}), 2, "--minutes");
  expect_refused(tune({"--budget", "10MB"}), 5, "10.0 MiB");
  expect_refused({"tune", "no such model.gguf"}, 3, "no file at");
  // Ten minutes would be lost if this were found at the end.
  scratch_.write("tuned", "a file where a folder should be");
  expect_refused(tune({}), 6, tuned());
  std::filesystem::remove(tuned());
  std::filesystem::create_directory(ledger());
  scratch_.write("ledger/" + bench::machine_identity().id + ".jsonl", "no record\n");
  expect_refused(tune({}), 3, "line 1");
}

TEST_F(Tune, ShowsAndForgetsWhatThereIs) {
  EXPECT_EQ(parsed(run({"tune", model_path(kDense), "--show", "--json"}))["profile"], nullptr);
  bench::TunedProfile profile;
  profile.machine_id = bench::machine_identity().id;
  profile.model_hash = hash();
  profile.engine_version = "0.1.0";
  profile.upstream_version = "llama.cpp";
  profile.time = "2026-11-30T23:10:05Z";
  profile.choices = {{"decode_threads", "1", "2", "0123456789ab", "decode_1024", {1.08, 1.05, 1.11}}};
  ASSERT_TRUE(bench::write_tuned(tuned(), profile).ok());
  const Outcome shown = run({"tune", model_path(kDense), "--show"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("decode_threads     2          1          decode_1024 1.08x (1.05 to 1.11)"));
  EXPECT_THAT(run({"tune", model_path(kDense), "--forget"}).out, HasSubstr("is removed"));
  EXPECT_THAT(run({"tune", model_path(kDense), "--forget"}).out, HasSubstr("There is no tuned profile"));
  EXPECT_THAT(run({"tune", model_path(kDense), "--show"}).out, HasSubstr("There is no tuned profile"));
}

}  // namespace
}  // namespace kazeia::cli_test
