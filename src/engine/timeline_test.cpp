#include "engine/timeline.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/machine.h"
#include "engine/mini_models.h"
#include "llama.h"
#include "plan/threads.h"

namespace kazeia {
namespace {

using mini::EachModel;

std::vector<float> copy(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

std::vector<float> fresh_logits(const std::string& file, std::span<const Token> tokens) {
  const auto timeline = mini::timeline(file);
  EXPECT_TRUE(timeline->prefill(tokens).ok());
  return copy(timeline->logits());
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return 1e9f;
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

ErrorCode code(const Status& status) {
  return status.ok() ? ErrorCode{} : status.error().code();
}

TEST(TimelineCreate, RefusesValuesOutOfRangeWithTheRange) {
  const auto refusal = [](auto change) {
    TimelineOptions options = mini::small_context();
    change(options);
    const auto result = Timeline::create(mini::model(mini::kDense), options);
    if (result.ok()) return std::string("accepted");
    EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
    return result.error().message();
  };
  EXPECT_EQ(refusal([](auto& o) { o.decode_threads = -1; }), "decode threads is -1, must be between 0 and 512");
  EXPECT_EQ(refusal([](auto& o) { o.prefill_threads = 513; }), "prefill threads is 513, must be between 0 and 512");
  EXPECT_EQ(refusal([](auto& o) { o.ubatch_tokens = 0; }), "ubatch is 0, must be between 1 and 65536");
  EXPECT_EQ(refusal([](auto& o) { o.context_tokens = 4'000'000'000u; }),
            "context is 4000000000, must be between 0 and 2147483392");
}

TEST(TimelineCreate, UsesTheTrainedContextAndThePlannedThreadsByDefault) {
  TimelineOptions options;
  options.context_tokens = 0;
  const auto timeline = mini::timeline(mini::kDense, options);
  EXPECT_EQ(timeline->capacity_tokens(), 2048u);
  EXPECT_EQ(timeline->decode_threads(), plan::default_threads(read_machine()));
  EXPECT_EQ(timeline->prefill_threads(), timeline->decode_threads());
}

TEST_P(EachModel, RefusesAContextLargerThanTheMemory) {
  TimelineOptions options = mini::small_context(2'000'000'000);
  const auto result = Timeline::create(mini::model(GetParam()), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kTooLarge);
  EXPECT_NE(result.error().message().find("2000000000 tokens"), std::string::npos) << result.error().message();
}

TEST_P(EachModel, NamesTheLargestContextThatFitsAndThatOneFits) {
  TimelineOptions options = mini::small_context(1'000'000);
  options.memory_budget_bytes = 64u << 20;
  const auto refused = Timeline::create(mini::model(GetParam()), options);
  ASSERT_FALSE(refused.ok());
  const std::string next = refused.error().next();
  const std::string before = "at most ";
  ASSERT_NE(next.find(before), std::string::npos) << refused.error().sentence();
  options.context_tokens = static_cast<std::uint32_t>(std::stoul(next.substr(next.find(before) + before.size())));
  EXPECT_GE(options.context_tokens, 2048u);
  const auto accepted = Timeline::create(mini::model(GetParam()), options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().sentence();
  EXPECT_LE(accepted.value()->state_bytes(), options.memory_budget_bytes);
  EXPECT_GT(accepted.value()->state_bytes(), options.memory_budget_bytes / 2);
}

TEST(TimelineCreate, SaysSoWhenNotEvenTheSmallestContextFits) {
  TimelineOptions options = mini::small_context();
  options.memory_budget_bytes = 1000;
  const auto result = Timeline::create(mini::model(mini::kDense), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kTooLarge);
  EXPECT_EQ(result.error().next().find("at most"), std::string::npos);
}

TEST_P(EachModel, GivesTheSameLogitsForAPromptInOnePieceInSeveralAndTokenByToken) {
  const Tokens tokens = mini::long_text(GetParam(), 100);
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 32;
  const auto in_pieces = mini::timeline(GetParam(), options);
  std::vector<std::size_t> progress;
  ASSERT_TRUE(in_pieces
                  ->prefill(tokens,
                            [&](std::size_t done, std::size_t total) {
                              EXPECT_EQ(total, 100u);
                              progress.push_back(done);
                            })
                  .ok());
  EXPECT_EQ(progress, (std::vector<std::size_t>{32, 64, 96, 100}));
  const auto one_by_one = mini::timeline(GetParam());
  for (const Token token : tokens) ASSERT_TRUE(one_by_one->decode(token).ok());
  const std::vector<float> whole = fresh_logits(GetParam(), tokens);
  // Wider pieces add up in another order.
  EXPECT_LT(largest_difference(in_pieces->logits(), whole), 0.25f);
  EXPECT_LT(largest_difference(one_by_one->logits(), whole), 0.25f);
  EXPECT_EQ(in_pieces->tokens(), tokens);
  EXPECT_EQ(one_by_one->tokens(), tokens);
}

TEST_P(EachModel, RefusesAPromptThatIsTooLongEmptyOrForeignAndChangesNothing) {
  const auto timeline = mini::timeline(GetParam(), mini::small_context(64));
  const Tokens tokens = mini::long_text(GetParam(), 100);
  const std::span<const Token> text(tokens);
  ASSERT_TRUE(timeline->prefill(text.first(40)).ok());
  const std::vector<float> before = copy(timeline->logits());

  EXPECT_EQ(code(timeline->prefill(text.first(25))), ErrorCode::kTooLarge);
  EXPECT_EQ(code(timeline->prefill({})), ErrorCode::kUsage);
  EXPECT_EQ(code(timeline->prefill(Tokens{1, 2048})), ErrorCode::kUsage);
  EXPECT_EQ(code(timeline->prefill(Tokens{-1})), ErrorCode::kUsage);
  EXPECT_EQ(code(timeline->decode(9999)), ErrorCode::kUsage);

  EXPECT_EQ(timeline->token_count(), 40u);
  EXPECT_FALSE(timeline->poisoned());
  EXPECT_EQ(copy(timeline->logits()), before);
}

TEST_P(EachModel, FillsItsContextToTheLastTokenAndNoFurther) {
  const auto timeline = mini::timeline(GetParam(), mini::small_context(50));
  const Tokens tokens = mini::long_text(GetParam(), 49);
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  EXPECT_EQ(timeline->free_tokens(), 1u);
  ASSERT_TRUE(timeline->decode(tokens[0]).ok());
  EXPECT_EQ(timeline->free_tokens(), 0u);
  const Status full = timeline->decode(tokens[0]);
  EXPECT_EQ(code(full), ErrorCode::kTooLarge);
  EXPECT_EQ(timeline->token_count(), 50u);
  EXPECT_FALSE(timeline->poisoned());
}

TEST(TimelineTruncate, OnADenseModelEqualsAFreshPrefill) {
  const Tokens tokens = mini::long_text(mini::kDense, 120);
  const std::span<const Token> text(tokens);
  // Pieces of the same width, so that both add up in the same order.
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 60;
  const auto timeline = mini::timeline(mini::kDense, options);
  ASSERT_TRUE(timeline->prefill(text.first(90)).ok());
  ASSERT_TRUE(timeline->truncate(60).ok());
  EXPECT_TRUE(timeline->logits().empty());
  EXPECT_EQ(timeline->tokens(), Tokens(tokens.begin(), tokens.begin() + 60));
  ASSERT_TRUE(timeline->prefill(text.subspan(100, 20)).ok());

  const auto fresh = mini::timeline(mini::kDense, options);
  ASSERT_TRUE(fresh->prefill(text.first(60)).ok());
  ASSERT_TRUE(fresh->prefill(text.subspan(100, 20)).ok());
  EXPECT_LT(largest_difference(timeline->logits(), fresh->logits()), 1e-4f);
}

TEST(TimelineTruncate, OnAHybridModelIsRefusedAndChangesNothing) {
  const Tokens tokens = mini::long_text(mini::kHybrid, 60);
  const auto timeline = mini::timeline(mini::kHybrid);
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  const std::vector<float> before = copy(timeline->logits());
  EXPECT_EQ(code(timeline->truncate(59)), ErrorCode::kUnsupported);
  EXPECT_EQ(code(timeline->truncate(1)), ErrorCode::kUnsupported);
  EXPECT_EQ(timeline->token_count(), 60u);
  EXPECT_EQ(copy(timeline->logits()), before);

  ASSERT_TRUE(timeline->truncate(60).ok());
  EXPECT_EQ(timeline->token_count(), 60u);
  ASSERT_TRUE(timeline->decode(tokens[0]).ok());
  Tokens longer = tokens;
  longer.push_back(tokens[0]);
  EXPECT_LT(largest_difference(timeline->logits(), fresh_logits(mini::kHybrid, longer)), 0.25f);
}

TEST_P(EachModel, TruncatesToNothingAndRefusesMoreThanThereIs) {
  const Tokens tokens = mini::long_text(GetParam(), 40);
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  EXPECT_EQ(code(timeline->truncate(41)), ErrorCode::kUsage);
  ASSERT_TRUE(timeline->truncate(0).ok());
  EXPECT_EQ(timeline->token_count(), 0u);
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  EXPECT_EQ(copy(timeline->logits()), fresh_logits(GetParam(), tokens));
}

TEST_P(EachModel, IsPoisonedByAFailedDecodeUntilItIsReset) {
  const Tokens tokens = mini::long_text(GetParam(), 40);
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(tokens).ok());

  // The computation is stopped from below, without a cancel that the timeline knows of.
  llama_set_abort_callback(
      timeline->raw(), [](void*) { return true; }, nullptr);
  const Status failed = timeline->decode(tokens[0]);
  EXPECT_EQ(code(failed), ErrorCode::kEngine);
  llama_set_abort_callback(timeline->raw(), nullptr, nullptr);

  EXPECT_TRUE(timeline->poisoned());
  EXPECT_TRUE(timeline->logits().empty());
  EXPECT_EQ(code(timeline->decode(tokens[0])), ErrorCode::kEngine);
  EXPECT_EQ(code(timeline->prefill(tokens)), ErrorCode::kEngine);
  EXPECT_EQ(code(timeline->truncate(0)), ErrorCode::kEngine);
  EXPECT_EQ(code(timeline->truncate(10)), ErrorCode::kEngine);

  timeline->reset();
  EXPECT_FALSE(timeline->poisoned());
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  EXPECT_EQ(copy(timeline->logits()), fresh_logits(GetParam(), tokens));
}

TEST_P(EachModel, IsPoisonedWhenUpstreamsPositionsContradictItsOwn) {
  const Tokens tokens = mini::long_text(GetParam(), 40);
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(tokens).ok());
  const auto other = mini::timeline(GetParam());
  // Behind its back: the state of a longer text.
  ASSERT_TRUE(other->prefill(mini::long_text(GetParam(), 50)).ok());
  std::vector<std::uint8_t> state(llama_state_seq_get_size(other->raw(), 0));
  llama_state_seq_get_data(other->raw(), state.data(), state.size(), 0);
  ASSERT_EQ(llama_state_seq_set_data(timeline->raw(), state.data(), state.size(), 0), state.size());

  const Status failed = timeline->decode(tokens[0]);
  EXPECT_EQ(code(failed), ErrorCode::kEngine);
  EXPECT_TRUE(timeline->poisoned());
}

TEST_P(EachModel, TellsTheBytesOfItsState) {
  const auto small = mini::timeline(GetParam(), mini::small_context(256));
  const auto large = mini::timeline(GetParam(), mini::small_context(4096));
  EXPECT_GT(small->state_bytes(), 100'000u);
  EXPECT_GT(large->state_bytes(), small->state_bytes());
}

INSTANTIATE_TEST_SUITE_P(Timeline, EachModel, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

}  // namespace
}  // namespace kazeia
