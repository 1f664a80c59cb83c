// Prefill on the (emulated) NPU, decode on the CPU, over one copy of the weights: the same answers as the CPU alone.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/mini_prompts.h"
#include "engine/npu_models.h"

namespace kazeia {
namespace {

class NpuPrefill : public mini::EachModel {};

// 30 prompts of 40 to 700 tokens: the open questions of mini_prompts.h behind more and more earlier dialogue.
std::vector<std::string> prompts_of_many_lengths() {
  std::vector<std::string> all = mini::prompts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string earlier;
    for (std::size_t turn = 0; turn < i * 26 / all.size() + 1; ++turn) {
      const std::string number = std::to_string(10 + (i * 7 + turn) % 90);
      earlier += mini::history({{"My number is " + number + ".", "I noted the number " + number + "."}});
    }
    const bool has_system = all[i].starts_with("<|im_start|>system");
    const std::size_t at = has_system ? all[i].find("<|im_end|>\n") + 11 : 0;
    all[i].insert(at, earlier);
  }
  return all;
}

double relative_gap(std::span<const float> a, std::span<const float> b) {
  double gap = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    gap = std::max(gap, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    size = std::max(size, std::abs(static_cast<double>(a[i])));
  }
  return gap / size;
}

TEST_P(NpuPrefill, GivesTheSameGreedyTextAsTheCpuFor30PromptsOf40To700Tokens) {
  const auto cpu = mini::timeline(GetParam());
  const auto npu = mini::npu_timeline(GetParam());
  ASSERT_NE(npu, nullptr);
  const auto sampler = mini::sampler(GetParam());
  const std::vector<std::string> prompts = prompts_of_many_lengths();
  ASSERT_EQ(prompts.size(), 30u);
  std::size_t shortest = 10000;
  std::size_t longest = 0;
  std::size_t read = 0;
  for (const std::string& prompt : prompts) {
    const std::size_t length = mini::tokens(GetParam(), prompt).size();
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
    read += length;
    const GenerationResult expected = mini::answer(*cpu, *sampler, GetParam(), prompt);
    const GenerationResult actual = mini::answer(*npu, *sampler, GetParam(), prompt);
    EXPECT_EQ(actual.text, expected.text) << prompt;
  }
  EXPECT_LE(shortest, 60u);
  EXPECT_GE(longest, 650u);
  const NpuUse use = npu->npu_use();
  EXPECT_EQ(use.failure, "");
  EXPECT_GE(use.prefill_tokens, read * 9 / 10);  // all but tails narrower than 32 tokens
  EXPECT_EQ(use.weight_bytes_copied, 0u);
  EXPECT_GT(use.npu_nodes, 0u);
}

// The emulated DSP multiplies in f16 what the CPU multiplies in int8: activations rounded to 2^-11 there, to 2^-8 of
// the largest of 32 here. The largest gap seen is 1.0 % of the largest logit (0 for f16 weights, where both round
// alike).
TEST_P(NpuPrefill, LogitsAgreeWithTheCpuWithinTheirRoundings) {
  const auto cpu = mini::timeline(GetParam());
  const auto npu = mini::npu_timeline(GetParam());
  ASSERT_NE(npu, nullptr);
  double worst = 0;
  for (const std::string& prompt : prompts_of_many_lengths()) {
    const Tokens tokens = mini::tokens(GetParam(), prompt);
    cpu->reset();
    npu->reset();
    ASSERT_TRUE(cpu->prefill(tokens).ok());
    ASSERT_TRUE(npu->prefill(tokens).ok());
    worst = std::max(worst, relative_gap(cpu->logits(), npu->logits()));
  }
  RecordProperty("worst_relative_gap", std::to_string(worst));
  EXPECT_LE(worst, 0.03);
}

TEST_P(NpuPrefill, OfAConversationInWhichEveryTurnContinuesTheState) {
  const auto cpu = mini::timeline(GetParam());
  const auto npu = mini::npu_timeline(GetParam());
  ASSERT_NE(npu, nullptr);
  const auto sampler = mini::sampler(GetParam());
  const std::vector<std::string> users = {
      "My name is Alice. Please remember it, because I will ask for my name again at the end of our talk.",
      "The secret word is lantern. Remember it.",
      "My favorite color is green.",
      "What is the secret word? I told it to you before, in an earlier message of this very conversation of ours.",
      "What is my name?",
      "What is my favorite color?"};
  for (const std::string& user : users) {
    std::string texts[2];
    int i = 0;
    for (Timeline* timeline : {cpu.get(), npu.get()}) {
      sampler->reset();
      ASSERT_TRUE(timeline->prefill(mini::tokens(GetParam(), mini::question(user))).ok());
      auto result = generate(*timeline, *sampler, {});
      ASSERT_TRUE(result.ok());
      texts[i++] = result->text;
    }
    EXPECT_EQ(texts[1], texts[0]) << user;
  }
  EXPECT_EQ(npu->npu_use().failure, "");
}

TEST_P(NpuPrefill, LeavesNarrowPiecesToTheCpu) {
  const auto npu = mini::npu_timeline(GetParam());
  ASSERT_NE(npu, nullptr);
  ASSERT_TRUE(npu->prefill(mini::long_text(GetParam(), 31)).ok());
  EXPECT_EQ(npu->npu_use().prefill_tokens, 0u);
  npu->reset();
  ASSERT_TRUE(npu->prefill(mini::long_text(GetParam(), 32)).ok());
  EXPECT_EQ(npu->npu_use().prefill_tokens, 32u);
}

TEST_P(NpuPrefill, CanDoEverythingOnTheNpuToCompare) {
  TimelineOptions options = mini::small_context();
  options.npu.part = NpuPart::kAll;
  const auto npu = mini::npu_timeline(GetParam(), options);
  const auto cpu = mini::timeline(GetParam());
  ASSERT_NE(npu, nullptr);
  const auto sampler = mini::sampler(GetParam());
  const std::string prompt = mini::question("What is the capital of Japan?");
  const GenerationResult expected = mini::answer(*cpu, *sampler, GetParam(), prompt);
  const GenerationResult actual = mini::answer(*npu, *sampler, GetParam(), prompt);
  EXPECT_EQ(actual.text, expected.text);
  EXPECT_EQ(npu->npu_use().failure, "");
}

TEST_P(NpuPrefill, CanBeCancelledBetweenPieces) {
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 64;
  const auto npu = mini::npu_timeline(GetParam(), options);
  ASSERT_NE(npu, nullptr);
  CancelFlag cancel;
  const Tokens text = mini::long_text(GetParam(), 300);
  const Status status = npu->prefill(
      text, [&](std::size_t done, std::size_t) { done >= 128 ? cancel.request() : void(); }, &cancel);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(npu->token_count(), 128u);
  EXPECT_TRUE(npu->prefill(std::span(text).subspan(128)).ok());
}

INSTANTIATE_TEST_SUITE_P(Engine, NpuPrefill, testing::Values(mini::kDense, mini::kHybrid, mini::kHybridF16),
                         mini::model_test_name);

}  // namespace
}  // namespace kazeia
