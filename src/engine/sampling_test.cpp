#include "engine/sampling.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"

namespace kazeia {
namespace {

constexpr std::size_t kVocabulary = 2048;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> logits_with(std::vector<std::pair<std::size_t, float>> values, float rest = 0) {
  std::vector<float> logits(kVocabulary, rest);
  for (const auto& [token, logit] : values) logits[token] = logit;
  return logits;
}

Token sample(Sampler& sampler, std::span<const float> logits) {
  const auto token = sampler.sample(logits);
  EXPECT_TRUE(token.ok()) << (token.ok() ? "" : token.error().sentence());
  return token.ok() ? token.value() : -1;
}

Tokens samples(Sampler& sampler, std::span<const float> logits, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(sample(sampler, logits));
  return tokens;
}

// Everything off except what the test turns on.
SamplingOptions plain(float temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  return options;
}

TEST(Sampler, TemperatureZeroTakesTheMostLikelyWhateverTheSeed) {
  for (const std::uint32_t seed : {0u, 1u, 99u}) {
    SamplingOptions options = mini::greedy();
    options.seed = seed;
    const auto sampler = mini::sampler(mini::kDense, options);
    EXPECT_EQ(samples(*sampler, logits_with({{7, 1.0f}, {9, 1.5f}}), 5), Tokens(5, 9));
  }
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndAnotherSeedOthers) {
  const std::vector<float> flat(kVocabulary, 0.0f);
  SamplingOptions options = plain(1);
  options.seed = 42;
  const Tokens first = samples(*mini::sampler(mini::kDense, options), flat, 20);
  EXPECT_EQ(samples(*mini::sampler(mini::kDense, options), flat, 20), first);
  options.seed = 43;
  EXPECT_NE(samples(*mini::sampler(mini::kDense, options), flat, 20), first);
}

TEST(Sampler, TheLargestSeedIsASeedLikeAnyOther) {
  const std::vector<float> flat(kVocabulary, 0.0f);
  SamplingOptions options = plain(1);
  options.seed = 0xFFFFFFFFu;
  const Tokens first = samples(*mini::sampler(mini::kDense, options), flat, 20);
  EXPECT_EQ(samples(*mini::sampler(mini::kDense, options), flat, 20), first);
}

TEST(Sampler, ResetStartsTheSeedAgain) {
  const std::vector<float> flat(kVocabulary, 0.0f);
  const auto sampler = mini::sampler(mini::kDense, plain(1));
  const Tokens first = samples(*sampler, flat, 20);
  EXPECT_NE(samples(*sampler, flat, 20), first);
  sampler->reset();
  EXPECT_EQ(samples(*sampler, flat, 20), first);
}

TEST(Sampler, TopKTopPAndMinPCutTheTail) {
  const std::vector<float> logits = logits_with({{1, 5.0f}, {2, 4.9f}, {3, 4.8f}, {4, 2.0f}}, -20.0f);
  const auto seen = [&](SamplingOptions options) {
    const auto sampler = mini::sampler(mini::kDense, options);
    const Tokens drawn = samples(*sampler, logits, 400);
    return std::set<Token>(drawn.begin(), drawn.end());
  };
  EXPECT_EQ(seen(plain(1)), (std::set<Token>{1, 2, 3, 4}));
  SamplingOptions top_k = plain(1);
  top_k.top_k = 2;
  EXPECT_EQ(seen(top_k), (std::set<Token>{1, 2}));
  SamplingOptions top_p = plain(1);
  top_p.top_p = 0.5f;
  EXPECT_EQ(seen(top_p), (std::set<Token>{1, 2}));
  SamplingOptions min_p = plain(1);
  min_p.min_p = 0.3f;
  EXPECT_EQ(seen(min_p), (std::set<Token>{1, 2, 3}));
}

TEST(Sampler, AHigherTemperatureSpreadsTheChoice) {
  const std::vector<float> logits = logits_with({{1, 3.0f}}, 0.0f);
  const auto share = [&](float temperature) {
    const auto sampler = mini::sampler(mini::kDense, plain(temperature));
    const Tokens drawn = samples(*sampler, logits, 500);
    return std::count(drawn.begin(), drawn.end(), 1);
  };
  EXPECT_GT(share(0.3f), 400);
  EXPECT_LT(share(2.0f), 100);
}

TEST(Sampler, ThePresencePenaltyMovesOnAndResetForgetsIt) {
  const std::vector<float> logits = logits_with({{1, 2.0f}, {2, 1.5f}, {3, 1.2f}}, -9.0f);
  SamplingOptions options = mini::greedy();
  options.presence_penalty = 1.0f;
  const auto sampler = mini::sampler(mini::kDense, options);
  EXPECT_EQ(samples(*sampler, logits, 3), (Tokens{1, 2, 3}));
  sampler->reset();
  EXPECT_EQ(samples(*sampler, logits, 3), (Tokens{1, 2, 3}));
}

TEST(Sampler, TheRepeatPenaltyLooksAtItsWindowOnly) {
  const std::vector<float> logits = logits_with({{1, 2.0f}, {2, 1.9f}}, -9.0f);
  SamplingOptions options = mini::greedy();
  options.repeat_penalty = 1.5f;
  options.penalty_window = 1;
  EXPECT_EQ(samples(*mini::sampler(mini::kDense, options), logits, 4), (Tokens{1, 2, 1, 2}));
  options.penalty_window = 0;
  EXPECT_EQ(samples(*mini::sampler(mini::kDense, options), logits, 3), (Tokens{1, 1, 1}));
}

TEST(Sampler, RefusesOutputThatIsNotANumber) {
  const auto sampler = mini::sampler(mini::kDense);
  for (const float bad : {std::nanf(""), kInfinity}) {
    const auto token = sampler->sample(logits_with({{1, bad}}));
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code(), ErrorCode::kEngine);
  }
  EXPECT_EQ(sample(*sampler, logits_with({{1, -kInfinity}, {2, 1.0f}})), 2) << "minus infinity rules a token out";
  const auto none = sampler->sample(std::vector<float>(kVocabulary, -kInfinity));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), ErrorCode::kEngine);
}

TEST(Sampler, RefusesLogitsOfAnotherVocabulary) {
  const auto sampler = mini::sampler(mini::kDense);
  for (const std::size_t size : {std::size_t{0}, kVocabulary - 1, kVocabulary + 1}) {
    const auto token = sampler->sample(std::vector<float>(size, 0.0f));
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code(), ErrorCode::kUsage);
  }
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  SamplingOptions options;
  options.temperature = 9;
  const auto result = Sampler::create(mini::model(mini::kDense), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace kazeia
