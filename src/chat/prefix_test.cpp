#include "chat/prefix.h"

#include <gtest/gtest.h>

#include "chat/mini_model.h"

namespace kazeia {
namespace {

const Tokens kHeld{10, 11, 12, 13, 14};

std::unique_ptr<Timeline> holding(const std::string& name, const Tokens& tokens) {
  auto model = mini_model(name);
  if (model == nullptr) return nullptr;
  auto timeline = mini_timeline(std::move(model), 64);
  if (timeline != nullptr && !tokens.empty()) {
    EXPECT_TRUE(timeline->prefill(tokens).ok());
  }
  return timeline;
}

void expect_reuse(const std::string& name, const Tokens& prompt, std::size_t expected) {
  const auto timeline = holding(name, kHeld);
  ASSERT_NE(timeline, nullptr);
  const auto reused = reuse_longest_prefix(*timeline, prompt);
  ASSERT_TRUE(reused.ok()) << reused.error().sentence();
  EXPECT_EQ(*reused, expected);
  EXPECT_EQ(timeline->tokens(), Tokens(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(expected)));
}

TEST(PrefixReuse, KeepsEverythingWhenThePromptContinuesIt) {
  for (const auto& name : {kDense, kHybrid}) expect_reuse(name, {10, 11, 12, 13, 14, 15}, 5);
}

TEST(PrefixReuse, CutsADenseModelBackToTheDifference) {
  expect_reuse(kDense, {10, 11, 99, 13, 14, 15}, 2);
}

TEST(PrefixReuse, StartsARecurrentModelAgainAtADifference) {
  expect_reuse(kHybrid, {10, 11, 99, 13, 14, 15}, 0);
}

TEST(PrefixReuse, LeavesOneTokenToReadWhenThePromptIsAlreadyThere) {
  expect_reuse(kDense, kHeld, 4);
  expect_reuse(kHybrid, kHeld, 0);
  expect_reuse(kDense, {10}, 0);
}

TEST(PrefixReuse, ReusesNothingOfAnEmptyTimeline) {
  const auto timeline = holding(kDense, {});
  ASSERT_NE(timeline, nullptr);
  const auto reused = reuse_longest_prefix(*timeline, kHeld);
  ASSERT_TRUE(reused.ok());
  EXPECT_EQ(*reused, 0U);
}

}  // namespace
}  // namespace kazeia
