// Our attention against upstream's, through the engine.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"
#include "engine/mini_prompts.h"

namespace kazeia {
namespace {

constexpr int kSteps = 48;
constexpr float kTie = 1e-2f;  // between two candidates' logits

std::unique_ptr<Timeline> timeline(const std::string& file, AttentionKernels attention, int threads = 1) {
  TimelineOptions options = mini::small_context();
  options.attention = attention;
  options.decode_threads = options.prefill_threads = threads;
  return mini::timeline(file, options);
}

Token most_likely(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<float> copied(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

class EngineAttention : public mini::EachModel {};

TEST_P(EngineAttention, WritesUpstreamsGreedyText) {
  const auto upstream = timeline(GetParam(), AttentionKernels::kUpstream);
  const auto ours = timeline(GetParam(), AttentionKernels::kKazeia);
  ASSERT_TRUE(upstream && ours);
  bool computed_otherwise = false;
  for (std::size_t i = 0; i < 8; ++i) {
    const Tokens prompt = mini::tokens(GetParam(), mini::prompts()[i]);
    upstream->reset();
    ours->reset();
    ASSERT_TRUE(upstream->prefill(prompt).ok() && ours->prefill(prompt).ok());
    for (int step = 0; step < kSteps; ++step) {
      const Token expected = most_likely(upstream->logits()), got = most_likely(ours->logits());
      computed_otherwise = computed_otherwise || copied(upstream->logits()) != copied(ours->logits());
      if (expected != got) {
        const auto logit = [&](Token token) { return upstream->logits()[static_cast<std::size_t>(token)]; };
        EXPECT_LT(logit(expected) - logit(got), kTie) << mini::prompts()[i] << ", step " << step;
        break;
      }
      ASSERT_TRUE(upstream->decode(expected).ok() && ours->decode(expected).ok());
    }
  }
  EXPECT_TRUE(computed_otherwise) << "the same kernels were at work";
}

TEST_P(EngineAttention, IsTheSameForAnyNumberOfThreads) {
  const Tokens text = mini::long_text(GetParam(), 700);
  std::vector<float> expected;
  for (const int threads : {1, 2, 3}) {
    const auto line = timeline(GetParam(), AttentionKernels::kKazeia, threads);
    ASSERT_TRUE(line);
    // The same prompt by the same threads as before, up to the last tokens.
    ASSERT_TRUE(line->prefill(text).ok() && line->decode(most_likely(line->logits())).ok());
    if (expected.empty()) expected = copied(line->logits());
    EXPECT_EQ(copied(line->logits()), expected) << threads;
  }
}

TEST_P(EngineAttention, OfShortPiecesOfAPromptAgreesToo) {
  const Tokens text = mini::long_text(GetParam(), 300);
  const auto upstream = timeline(GetParam(), AttentionKernels::kUpstream);
  const auto ours = timeline(GetParam(), AttentionKernels::kKazeia);
  ASSERT_TRUE(upstream && ours);
  for (Timeline* line : {upstream.get(), ours.get()}) {
    ASSERT_TRUE(line->prefill(std::span(text).first(293)).ok());
    ASSERT_TRUE(line->prefill(std::span(text).subspan(293)).ok());  // seven rows at once
  }
  float largest = 0;
  for (std::size_t i = 0; i < upstream->logits().size(); ++i) {
    largest = std::max(largest, std::abs(upstream->logits()[i] - ours->logits()[i]));
  }
  EXPECT_GT(largest, 0.0f);
  EXPECT_LT(largest, 0.1f);
}

INSTANTIATE_TEST_SUITE_P(MiniModels, EngineAttention, testing::Values(mini::kDense, mini::kHybrid),
                         mini::model_test_name);

TEST(AttentionKernels, HaveNames) {
  EXPECT_EQ(attention_of_name("kazeia"), AttentionKernels::kKazeia);
  EXPECT_EQ(attention_of_name("upstream"), AttentionKernels::kUpstream);
  EXPECT_EQ(attention_of_name("other"), std::nullopt);
}

}  // namespace
}  // namespace kazeia
