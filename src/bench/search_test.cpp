// The search against machines that are made up: what is best is known, and time passes as they say.

#include "bench/search.h"

#include <algorithm>
#include <random>
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
using ::testing::Pair;

std::string value_of(const Choices& choices, const std::string& setting) {
  const auto found = choices.find(setting);
  return found == choices.end() ? "" : found->second;
}

// The decode speed, the prefill speed and the peak of a configuration, before noise.
using Truth = std::function<Sample(const Choices&)>;

Sample usual() {
  return {{"decode_1024", 10}, {"prefill_1024", 100}, {"peak_rss_bytes", 1e9}};
}

class MadeUpMachine {
 public:
  explicit MadeUpMachine(Truth truth, std::uint64_t seed = 1, double noise = 0.02)
      : truth_(std::move(truth)), random_(seed), noise_(1, noise) {}

  SearchSeams seams() {
    SearchSeams seams;
    seams.measure = [this](const std::vector<Choices>& configurations, const Work& work) {
      return measure(configurations, work);
    };
    seams.seconds = [this] { return now; };
    seams.keep = [this](const Proof& proof) -> Result<std::string> {
      if (refuse) return Error(ErrorCode::kFile, "the ledger is damaged");
      kept.push_back(proof);
      return fmt::format("{:012x}", kept.size());
    };
    return seams;
  }

  double now = 0;
  double proof_seconds = 10;
  int runs = 0;
  int cancel_after = 1 << 30;  // runs
  bool refuse = false;
  std::string disturbance;  // of every proof's round
  std::vector<Proof> kept;
  std::vector<Choices> looked_at;

 private:
  Result<Round> measure(const std::vector<Choices>& configurations, const Work& work) {
    Round round;
    if (work.level == kProofLevel) round.disturbance = disturbance;
    for (const Choices& choices : configurations) {
      if (runs++ >= cancel_after) return Error(ErrorCode::kCancelled, "stopped by the user");
      if (value_of(choices, "flash_attention") == "impossible") return Error(ErrorCode::kUsage, "it cannot be run");
      now += work.level == kProofLevel ? proof_seconds : std::min(proof_seconds, 2.0 * (1 << work.level));
      if (work.level != kProofLevel) looked_at.push_back(choices);
      Sample sample = truth_(choices);
      for (auto& [name, value] : sample) {
        if (name != "peak_rss_bytes") value *= noise_(random_);
      }
      round.samples.push_back(std::move(sample));
    }
    return round;
  }

  Truth truth_;
  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
};

const std::vector<std::string> kDecode{"decode_1024"};
const std::vector<std::string> kPrefill{"prefill_1024"};
const std::vector<std::string> kBoth{"decode_1024", "prefill_1024"};

const std::vector<SearchedSetting> kSettings{
    {.name = "decode_threads", .instead = "4", .values = {"1", "2", "3"}, .figures = kDecode},
    {.name = "prefill_threads", .instead = "4", .values = {"1", "2", "3"}, .figures = kPrefill},
    {.name = "ubatch", .instead = "512", .values = {"128", "256", "1024"}, .figures = kPrefill, .first_level = 2},
    {.name = "poll", .instead = "off", .values = {"0", "50"}, .figures = kBoth},
};

// Three threads are best to decode, 256 is the best ubatch; the rest makes it slower or does nothing.
Sample two_gains(const Choices& choices) {
  Sample sample = usual();
  const std::string threads = value_of(choices, "decode_threads");
  sample["decode_1024"] *= threads == "1" ? 0.5 : threads == "2" ? 0.95 : threads == "3" ? 1.08 : 1;
  const std::string ubatch = value_of(choices, "ubatch");
  sample["prefill_1024"] *= ubatch == "128" ? 0.9 : ubatch == "256" ? 1.1 : ubatch == "1024" ? 1.02 : 1;
  if (value_of(choices, "prefill_threads") == "1") sample["prefill_1024"] *= 0.3;
  return sample;
}

Sample nothing_to_find(const Choices& /*choices*/) {
  return usual();
}

Result<SearchResult> searched(MadeUpMachine& machine, double seconds = 3000,
                              const std::vector<SearchedSetting>& settings = kSettings) {
  SearchOptions options;
  options.seconds = seconds;
  return search(settings, options, machine.seams());
}

const Finding* finding(const SearchResult& result, const std::string& setting) {
  for (const Finding& one : result.findings) {
    if (one.setting == setting) return &one;
  }
  return nullptr;
}

TEST(Search, FindsWhatIsBestThroughNoise) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    MadeUpMachine machine(two_gains, seed);
    const Result<SearchResult> result = searched(machine);
    ASSERT_TRUE(result.ok());
    // Never another value, and rarely less than both.
    for (const auto& [setting, value] : result->chosen) {
      EXPECT_TRUE((setting == "decode_threads" && value == "3") || (setting == "ubatch" && value == "256"))
          << seed << ": " << setting << " " << value;
    }
    found += static_cast<int>(result->chosen.size());
  }
  EXPECT_GE(found, 36);
}

TEST(Search, ChoosesNothingWhereThereIsNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    MadeUpMachine machine(nothing_to_find, seed);
    const Result<SearchResult> result = searched(machine);
    ASSERT_TRUE(result.ok());
    EXPECT_THAT(result->chosen, IsEmpty()) << seed;
    EXPECT_THAT(result->proofs, IsEmpty());
    EXPECT_EQ(result->ended, "");
  }
}

TEST(Search, ProvesEachChoiceWithTheOthersAndTheWhole) {
  MadeUpMachine machine(two_gains, 3, 0.005);
  const Result<SearchResult> result = searched(machine);
  ASSERT_TRUE(result.ok());
  ASSERT_THAT(result->chosen, ElementsAre(Pair("decode_threads", "3"), Pair("ubatch", "256")));
  ASSERT_EQ(result->proofs.size(), 2U);
  for (const Proof& proof : result->proofs) {
    EXPECT_EQ(proof.tuned, result->chosen) << proof.setting;
    Choices without = result->chosen;
    without.erase(proof.setting);
    EXPECT_EQ(proof.without, without) << proof.setting;
    EXPECT_EQ(proof.judged.judgement, Judgement::kWon);
    EXPECT_GE(proof.gains.front().tuned.size(), 4U);
    EXPECT_NE(proof.record, "");
    EXPECT_EQ(finding(*result, proof.setting)->reason, "");
    EXPECT_TRUE(finding(*result, proof.setting)->chosen);
  }
  EXPECT_EQ(result->whole.setting, "");
  EXPECT_EQ(result->whole.tuned, result->chosen);
  EXPECT_THAT(result->whole.without, IsEmpty());
  EXPECT_NEAR(result->whole.gain("decode_1024")->gain.median, 1.08, 0.02);
  EXPECT_NEAR(result->whole.gain("prefill_1024")->gain.median, 1.1, 0.02);
  EXPECT_EQ(finding(*result, "prefill_threads")->value.empty(), false);
  EXPECT_THAT(finding(*result, "prefill_threads")->reason, HasSubstr("no gain"));
}

TEST(Search, ChoosesTheSameForTheSameSamples) {
  MadeUpMachine one(two_gains, 7), other(two_gains, 7);
  const Result<SearchResult> a = searched(one), b = searched(other);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->chosen, b->chosen);
  EXPECT_EQ(one.looked_at, other.looked_at);
  EXPECT_EQ(one.runs, other.runs);
}

TEST(Search, HalvesWhatItLooksAt) {
  MadeUpMachine machine(two_gains, 1, 0.001);
  ASSERT_TRUE(searched(machine).ok());
  const auto looks = [&](const std::string& setting, const std::string& value) {
    return std::count(machine.looked_at.begin(), machine.looked_at.end(), Choices{{setting, value}});
  };
  EXPECT_EQ(looks("decode_threads", "1"), 1);
  EXPECT_EQ(looks("prefill_threads", "1"), 1);
  EXPECT_GE(looks("decode_threads", "3"), 2);
  EXPECT_GE(looks("ubatch", "256"), 2);
}

TEST(Search, EndsInTime) {
  for (const double seconds : {5.0, 30.0, 60.0, 120.0, 200.0, 300.0, 500.0, 900.0}) {
    MadeUpMachine machine(two_gains, 2);
    const Result<SearchResult> result = searched(machine, seconds);
    ASSERT_TRUE(result.ok());
    EXPECT_LE(machine.now, std::max(seconds, machine.proof_seconds)) << seconds;
    for (const Proof& proof : result->proofs) EXPECT_EQ(proof.judged.judgement, Judgement::kWon);
    EXPECT_EQ(result->proofs.size(), result->chosen.size());
    EXPECT_TRUE(seconds >= 60 || result->chosen.empty());
  }
}

TEST(Search, KeepsWhatWasProvenWhenItIsStopped) {
  MadeUpMachine whole_machine(two_gains, 3, 0.005);
  ASSERT_TRUE(searched(whole_machine).ok());
  std::size_t most = 0;
  for (int runs = 0; runs <= whole_machine.runs; ++runs) {
    MadeUpMachine machine(two_gains, 3, 0.005);
    machine.cancel_after = runs;
    const Result<SearchResult> result = searched(machine);
    ASSERT_TRUE(result.ok()) << runs;
    ASSERT_EQ(result->proofs.size(), result->chosen.size()) << runs;
    for (const Proof& proof : result->proofs) {
      EXPECT_EQ(proof.judged.judgement, Judgement::kWon);
      EXPECT_NE(proof.record, "");
    }
    // More is known later on.
    EXPECT_GE(result->chosen.size(), most) << runs;
    most = std::max(most, result->chosen.size());
    EXPECT_EQ(result->ended, runs < whole_machine.runs ? "stopped by the user" : "");
  }
  EXPECT_EQ(most, 2U);
}

TEST(Search, DoesNoHarmWithSettingsThatHelpTogetherOnly) {
  const Truth truth = [](const Choices& choices) {
    Sample sample = usual();
    const bool one = value_of(choices, "decode_threads") == "3";
    const bool other = value_of(choices, "poll") == "50";
    if (one != other) sample["decode_1024"] *= 0.9;
    if (one && other) sample["decode_1024"] *= 1.2;
    return sample;
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    MadeUpMachine machine(truth, seed);
    const Result<SearchResult> result = searched(machine);
    ASSERT_TRUE(result.ok());
    EXPECT_GE(truth(result->chosen).at("decode_1024"), 10) << seed;
  }
}

TEST(Search, DoesNoHarmWithSettingsThatHurtTogether) {
  const Truth truth = [](const Choices& choices) {
    Sample sample = usual();
    const bool one = value_of(choices, "decode_threads") == "3";
    const bool other = value_of(choices, "poll") == "50";
    if (one || other) sample["decode_1024"] *= one && other ? 0.8 : 1.1;
    return sample;
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    MadeUpMachine machine(truth, seed);
    const Result<SearchResult> result = searched(machine);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->chosen.size(), 1U) << seed;
    EXPECT_GE(truth(result->chosen).at("decode_1024"), 11) << seed;
  }
}

TEST(Search, GivesUpAChoiceThatAnotherOneMadeNeedless) {
  // Either brings the same, and both no more than one.
  const Truth truth = [](const Choices& choices) {
    Sample sample = usual();
    const bool any = value_of(choices, "decode_threads") == "3" || value_of(choices, "poll") == "50";
    sample["decode_1024"] *= any ? 1.1 : 1;
    return sample;
  };
  MadeUpMachine machine(truth, 5);
  const Result<SearchResult> result = searched(machine);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->chosen.size(), 1U);
}

TEST(Search, GivesUpEverythingIfTheWholeDoesNotWin) {
  // A gain that goes away: the machine changes while it is measured.
  int proofs = 0;
  Truth truth = [&proofs](const Choices& choices) {
    Sample sample = usual();
    if (value_of(choices, "decode_threads") == "3" && proofs == 0) sample["decode_1024"] *= 1.2;
    return sample;
  };
  MadeUpMachine machine(truth, 4);
  SearchSeams seams = machine.seams();
  seams.keep = [&](const Proof&) -> Result<std::string> {
    ++proofs;
    return std::string("0123456789ab");
  };
  const Result<SearchResult> result = search(kSettings, SearchOptions(), seams);
  ASSERT_TRUE(result.ok());
  EXPECT_GE(proofs, 2);
  EXPECT_THAT(result->chosen, IsEmpty());
  EXPECT_THAT(finding(*result, "decode_threads")->reason, HasSubstr("measured once more: no gain"));
}

TEST(Search, ChoosesNothingThatCostsAnotherFigureOrMemory) {
  const Truth truth = [](const Choices& choices) {
    Sample sample = two_gains(choices);
    if (value_of(choices, "decode_threads") == "3") sample["prefill_1024"] *= 0.9;
    if (value_of(choices, "ubatch") == "256") sample["peak_rss_bytes"] *= 1.1;
    return sample;
  };
  MadeUpMachine machine(truth, 6);
  const Result<SearchResult> result = searched(machine);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->chosen, IsEmpty());
  EXPECT_THAT(finding(*result, "decode_threads")->reason, HasSubstr("prefill_1024 gets worse"));
  EXPECT_THAT(finding(*result, "ubatch")->reason, HasSubstr("peak_rss_bytes grows"));
}

TEST(Search, LeavesOutAValueThatCannotBeRun) {
  std::vector<SearchedSetting> settings = kSettings;
  settings.push_back({.name = "flash_attention", .instead = "on", .values = {"impossible"}, .figures = kBoth});
  MadeUpMachine machine(two_gains, 3, 0.005);
  const Result<SearchResult> result = searched(machine, 3000, settings);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->chosen.size(), 2U);
  EXPECT_EQ(finding(*result, "flash_attention")->reason, "it cannot be run");
}

TEST(Search, ShowsWithoutChoosing) {
  std::vector<SearchedSetting> settings = kSettings;
  settings.push_back({.name = "kv", .instead = "f16", .values = {"q8_0"}, .figures = kDecode, .only_shown = true});
  const Truth truth = [](const Choices& choices) {
    Sample sample = usual();
    if (value_of(choices, "kv") == "q8_0") sample["decode_1024"] *= 1.3;
    return sample;
  };
  MadeUpMachine machine(truth, 3);
  const Result<SearchResult> result = searched(machine, 3000, settings);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->chosen, IsEmpty());
  ASSERT_EQ(result->shown.size(), 1U);
  EXPECT_NEAR(result->shown[0].gain("decode_1024")->gain.median, 1.3, 0.05);
  EXPECT_NE(result->shown[0].record, "");
}

TEST(Search, TakesNoEvidenceFromADisturbedMachine) {
  MadeUpMachine machine(two_gains, 3);
  machine.disturbance = "other processes used 0.8 cores during decode_1024";
  const Result<SearchResult> result = searched(machine);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->chosen, IsEmpty());
  EXPECT_THAT(machine.kept, IsEmpty());
  EXPECT_THAT(finding(*result, "decode_threads")->reason, HasSubstr("other processes"));
}

TEST(Search, EndsWithTheErrorOfWhoKeepsTheProofs) {
  MadeUpMachine machine(two_gains, 3);
  machine.refuse = true;
  const Result<SearchResult> result = searched(machine);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message(), "the ledger is damaged");
}

}  // namespace
}  // namespace kazeia::bench
