#include "tune_report.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/sample_record.h"

namespace kazeia::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

bench::Proof won(const std::string& setting, const std::string& value, const std::string& record) {
  bench::Proof proof;
  proof.setting = setting;
  proof.value = value;
  proof.instead = "2";
  proof.gains = {{"decode_1024", {10.8, 10.9, 10.7, 10.8}, {10, 10, 10, 10}, {1.08, 1.07, 1.09}},
                 {"peak_rss_bytes", {1e9, 1e9, 1e9, 1e9}, {1e9, 1e9, 1e9, 1e9}, {1, 1, 1}}};
  proof.judged = {bench::Judgement::kWon, "decode_1024", "decode_1024 1.08x (1.07 to 1.09)"};
  proof.record = record;
  return proof;
}

class Report : public ::testing::Test {
 protected:
  Report() {
    plan_.depth = 1024;
    plan_.settings = {{.name = "decode_threads", .instead = "2", .values = {"1"}, .figures = {"decode_1024"}},
                      {.name = "poll", .instead = "off", .values = {"0", "50"}, .figures = {"decode_1024"}}};
    plan_.left_out = {{"cores", "all cores are alike"}};
    result_.findings = {{"decode_threads", "1", true, ""}, {"poll", "50", false, "no gain in a short look (0.99x)"}};
    result_.chosen = {{"decode_threads", "1"}};
    result_.proofs = {won("decode_threads", "1", "0123456789ab")};
    result_.whole = won("", "", "ba9876543210");
  }
  TuneReport report() const { return {plan_, result_, "model.gguf", 125, "/state/profile.json", ""}; }

  TunePlan plan_;
  bench::SearchResult result_;
};

TEST_F(Report, TellsDefaultChoiceGainAndRecordOfEachSetting) {
  const std::string text = tune_text(report());
  EXPECT_THAT(text, HasSubstr("decode_threads     2          1          decode_1024 1.08x (1.07 to 1.09), record "
                              "0123456789ab\n"));
  EXPECT_THAT(text, HasSubstr("poll               off        default    50: no gain in a short look (0.99x)\n"));
  EXPECT_THAT(text, HasSubstr("not searched: cores: all cores are alike\n"));
  EXPECT_THAT(text, HasSubstr("record ba9876543210\n"));
  EXPECT_THAT(text, HasSubstr("peak_rss_bytes"));
  EXPECT_THAT(text, HasSubstr("model.gguf took 2 min 5 s.\n"));
  EXPECT_THAT(text, HasSubstr("/state/profile.json"));

  const Json json = Json::parse(tune_json(report()));
  EXPECT_EQ(json["settings"][0]["chosen"], true);
  EXPECT_EQ(json["settings"][0]["gain"]["low"], 1.07);
  EXPECT_EQ(json["settings"][0]["record"], "0123456789ab");
  EXPECT_EQ(json["settings"][1]["chosen"], false);
  EXPECT_THAT(json["settings"][1]["reason"].get<std::string>(), HasSubstr("no gain"));
  EXPECT_EQ(json["whole"]["decode_1024"]["default"], 10);
  EXPECT_EQ(json["profile"], "/state/profile.json");
}

TEST_F(Report, SaysSoIfNothingIsBetter) {
  result_.chosen.clear();
  result_.proofs.clear();
  result_.whole = {};
  result_.findings[0] = {"decode_threads", "1", false, "there was no time left to prove it"};
  result_.ended = "the time was over";
  TuneReport report = this->report();
  report.profile = "";
  EXPECT_THAT(tune_text(report), HasSubstr("no profile is written"));
  EXPECT_THAT(tune_text(report), HasSubstr("; the time was over.\n"));
  EXPECT_THAT(tune_text(report), Not(HasSubstr("all of them")));
  report.kept = "2026-11-30T23:10:05Z";
  EXPECT_THAT(tune_text(report), HasSubstr("the profile of 2026-11-30T23:10:05Z stays"));
}

TEST_F(Report, MakesAProfileThatIsReadAgain) {
  std::string folder = (std::filesystem::temp_directory_path() / "kazeia-tune-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const bench::Record origin = bench::sample_record();
  const bench::TunedProfile profile = profile_of(result_, origin);
  ASSERT_TRUE(bench::write_tuned(folder, profile).ok());
  const bench::LoadedTunedProfile loaded = bench::read_tuned(folder, origin.machine.id, origin.model.hash);
  ASSERT_TRUE(loaded.profile.has_value()) << loaded.note;
  ASSERT_EQ(loaded.profile->choices.size(), 1U);
  const bench::TunedChoice expected{"decode_threads", "1", "2", "0123456789ab", "decode_1024", {1.08, 1.07, 1.09}};
  EXPECT_EQ(loaded.profile->choices[0], expected);
  EXPECT_THAT(profile_text(*loaded.profile, "/state/profile.json"), HasSubstr("decode_1024 1.08x (1.07 to 1.09)"));
  EXPECT_EQ(Json::parse(profile_json(*loaded.profile, "x"))["choices"][0]["value"], "1");
  std::filesystem::remove_all(folder);
}

TEST_F(Report, TellsWhatWouldBeSearched) {
  EXPECT_THAT(plan_text(plan_, 10), HasSubstr("poll               off        0,50"));
  EXPECT_THAT(plan_text(plan_, 10), HasSubstr("at 3 values"));
  EXPECT_THAT(plan_text(plan_, 10), HasSubstr("at most 10 minutes"));
  EXPECT_EQ(Json::parse(plan_json(plan_, 10))["settings"].size(), 2U);
}

}  // namespace
}  // namespace kazeia::cli
