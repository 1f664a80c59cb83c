#include "bench/gain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Sample> samples(const std::string& figure, const std::vector<double>& values) {
  std::vector<Sample> runs;
  for (const double value : values) runs.push_back({{figure, value}, {"peak_rss_bytes", 1e9}});
  return runs;
}

Judged judged(const std::vector<Sample>& tuned, const std::vector<Sample>& instead, double most_bytes = 0) {
  GainRules rules;
  rules.wanted = {"decode_1024"};
  rules.most_bytes = most_bytes;
  return judge(gains_of(tuned, instead), rules);
}

const std::vector<Sample> kUsual = samples("decode_1024", {10, 10.1, 9.9, 10});

TEST(Gain, IsAboveOneForMoreTokensAndForLessTime) {
  const std::vector<FigureGain> rate = gains_of(samples("decode_1024", {11, 11}), samples("decode_1024", {10, 10}));
  ASSERT_EQ(rate.size(), 2U);
  EXPECT_DOUBLE_EQ(rate[0].gain.median, 1.1);
  EXPECT_DOUBLE_EQ(rate[1].gain.median, 1);
  const std::vector<FigureGain> time = gains_of(samples("load_ms", {500, 500}), samples("load_ms", {1000, 1000}));
  EXPECT_DOUBLE_EQ(time[0].gain.median, 2);
}

TEST(Gain, OfAFigureThatARunLacksIsNotTold) {
  std::vector<Sample> some = kUsual;
  some[2].erase("decode_1024");
  ASSERT_EQ(gains_of(some, kUsual).size(), 1U);
  EXPECT_EQ(gains_of(some, kUsual)[0].figure, "peak_rss_bytes");
  some[2]["decode_1024"] = 0;
  EXPECT_EQ(gains_of(some, kUsual).size(), 1U);
  EXPECT_TRUE(gains_of({}, {}).empty());
}

TEST(Gain, WinsIfItsIntervalExcludesOne) {
  const Judged won = judged(samples("decode_1024", {10.8, 10.9, 10.7, 10.8}), kUsual);
  EXPECT_EQ(won.judgement, Judgement::kWon);
  EXPECT_EQ(won.figure, "decode_1024");
  EXPECT_THAT(won.reason, StartsWith("decode_1024 1.08x (1.0"));
}

TEST(Gain, IsUndecidedIfOneRoundSpeaksAgainstIt) {
  EXPECT_EQ(judged(samples("decode_1024", {10.8, 10.9, 9.8, 10.8}), kUsual).judgement, Judgement::kUndecided);
}

TEST(Gain, IsLostIfThereIsNone) {
  const Judged lost = judged(samples("decode_1024", {10, 9.9, 10.1, 10}), kUsual);
  EXPECT_EQ(lost.judgement, Judgement::kLost);
  EXPECT_THAT(lost.reason, HasSubstr("no gain: decode_1024"));
  EXPECT_EQ(judged({}, {}).judgement, Judgement::kLost);
}

TEST(Gain, ThatVariesTooMuchIsNoResultUnlessItIsBeyondThat) {
  const Judged noisy = judged(samples("decode_1024", {10.5, 12, 13, 11}), kUsual);
  EXPECT_EQ(noisy.judgement, Judgement::kUndecided);
  EXPECT_THAT(noisy.reason, HasSubstr("varied by"));
  EXPECT_EQ(judged(samples("decode_1024", {15.5, 16.2, 15.6, 17.3}), kUsual).judgement, Judgement::kWon);
}

TEST(Gain, IsLostToALossInAnotherFigure) {
  std::vector<Sample> tuned = samples("decode_1024", {10.8, 10.9, 10.7, 10.8});
  std::vector<Sample> instead = kUsual;
  for (Sample& run : tuned) run["prefill_1024"] = 95;
  for (Sample& run : instead) run["prefill_1024"] = 100;
  const Judged lost = judged(tuned, instead);
  EXPECT_EQ(lost.judgement, Judgement::kLost);
  EXPECT_THAT(lost.reason, HasSubstr("prefill_1024 gets worse: 0.95x"));
  for (Sample& run : tuned) run["prefill_1024"] = 98.5;
  EXPECT_EQ(judged(tuned, instead).judgement, Judgement::kWon);
}

TEST(Gain, MayNotCostMemoryUnlessThereIsABudgetForIt) {
  std::vector<Sample> tuned = samples("decode_1024", {10.8, 10.9, 10.7, 10.8});
  for (Sample& run : tuned) run["peak_rss_bytes"] = 1.2e9;
  const Judged lost = judged(tuned, kUsual);
  EXPECT_EQ(lost.judgement, Judgement::kLost);
  EXPECT_THAT(lost.reason, HasSubstr("peak_rss_bytes grows from"));
  EXPECT_EQ(judged(tuned, kUsual, 1.5e9).judgement, Judgement::kWon);
  EXPECT_THAT(judged(tuned, kUsual, 1.1e9).reason, HasSubstr("peak_rss_bytes would be"));
}

}  // namespace
}  // namespace kazeia::bench
