#include "engine/generation.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/mini_models.h"
#include "llama.h"

namespace kazeia {
namespace {

class Generation : public mini::EachModel {
 protected:
  std::unique_ptr<Timeline> timeline_ = mini::timeline(GetParam());
  std::unique_ptr<Sampler> sampler_ = mini::sampler(GetParam());

  GenerationResult ask(const std::string& question, const GenerationOptions& options = {}, const TextSink& sink = {}) {
    return mini::answer(*timeline_, *sampler_, GetParam(), mini::question(question), options, sink);
  }
  std::size_t prompt_tokens(const std::string& question) {
    return mini::tokens(GetParam(), mini::question(question)).size();
  }
};

TEST_P(Generation, AnswersAndStopsWhereTheModelEndsItsTurn) {
  const GenerationResult result = ask("What is 3 + 4?");
  EXPECT_EQ(result.text, "3 + 4 = 7.");
  EXPECT_EQ(result.reason, StopReason::kEndOfText);
  ASSERT_FALSE(result.tokens.empty());
  EXPECT_TRUE(timeline_->model().ends_generation(result.tokens.back()));
  // The timeline holds the answer, without the token that ended it.
  EXPECT_EQ(timeline_->token_count(), prompt_tokens("What is 3 + 4?") + result.tokens.size() - 1);
  EXPECT_GT(result.first_token_ms, 0);
  EXPECT_GT(result.decode_ms, 0);
  EXPECT_NEAR(result.decode_tps(), 1000.0 * static_cast<double>(result.tokens.size() - 1) / result.decode_ms, 1e-6);
}

TEST_P(Generation, StreamsExactlyTheTextOfItsResult) {
  std::string streamed;
  const GenerationResult result =
      ask("Je n'arrive pas à dormir.", {}, [&](std::string_view text) { streamed += text; });
  EXPECT_EQ(result.text, "Éteignez l'écran, baissez la lumière et respirez doucement.");
  EXPECT_EQ(streamed, result.text);
}

TEST_P(Generation, StreamsWholeCharactersOnly) {
  std::vector<std::string> parts;
  ask("Je suis stressé.", {}, [&](std::string_view text) { parts.emplace_back(text); });
  EXPECT_GT(parts.size(), 3u);
  for (const std::string& part : parts) {
    ASSERT_FALSE(part.empty());
    EXPECT_NE(static_cast<unsigned char>(part.front()) & 0xC0, 0x80) << "begins inside a character: " << part;
  }
}

TEST_P(Generation, JoinsAnEmojiWhoseBytesAreSeparateTokens) {
  // The vocabulary has no token for it, so the grammar makes the model write its four bytes one by one.
  SamplingOptions options = mini::greedy();
  options.grammar = "root ::= \"a🙂é\"";
  sampler_ = mini::sampler(GetParam(), options);
  std::vector<std::string> parts;
  const GenerationResult result = ask("Hello!", {}, [&](std::string_view text) { parts.emplace_back(text); });
  EXPECT_EQ(result.text, "a🙂é");
  EXPECT_GT(result.tokens.size(), 4u);
  EXPECT_THAT(parts, testing::Contains("🙂"));
}

TEST_P(Generation, DropsACharacterThatTheTokenLimitCutOff) {
  SamplingOptions options = mini::greedy();
  options.grammar = "root ::= \"🙂\"";
  sampler_ = mini::sampler(GetParam(), options);
  GenerationOptions limits;
  limits.max_tokens = 1;
  const GenerationResult result = ask("Hello!", limits);
  EXPECT_EQ(result.reason, StopReason::kMaxTokens);
  EXPECT_EQ(result.text, "");
}

TEST_P(Generation, StopsAtAStopStringThatSpansTokensAndEmitsNoPartOfIt) {
  GenerationOptions options;
  options.stop_strings = {"9, 10", "never"};
  std::string streamed;
  const GenerationResult result = ask("Count from 7 to 12.", options, [&](std::string_view text) { streamed += text; });
  EXPECT_EQ(result.reason, StopReason::kStopString);
  EXPECT_EQ(result.text, "7, 8, ");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(timeline_->token_count(), prompt_tokens("Count from 7 to 12.") + result.tokens.size());
}

TEST_P(Generation, GivesBackWhatLookedLikeAStopStringUntilTheEnd) {
  GenerationOptions options;
  options.stop_strings = {"12.!", "7, 8, 9, 11"};
  EXPECT_EQ(ask("Count from 7 to 12.", options).text, "7, 8, 9, 10, 11, 12.");
}

TEST_P(Generation, StopsAtAStopTokenOfTheCaller) {
  GenerationOptions options;
  const GenerationResult whole = ask("Count from 7 to 12.");
  options.stop_tokens = {whole.tokens[3]};
  const GenerationResult result = ask("Count from 7 to 12.", options);
  EXPECT_EQ(result.reason, StopReason::kEndOfText);
  EXPECT_LE(result.tokens.size(), 4u);
  EXPECT_EQ(result.tokens.back(), whole.tokens[3]);
}

TEST_P(Generation, StopsAtTheTokenLimit) {
  GenerationOptions options;
  options.max_tokens = 3;
  const GenerationResult result = ask("Count from 7 to 12.", options);
  EXPECT_EQ(result.reason, StopReason::kMaxTokens);
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(timeline_->token_count(), prompt_tokens("Count from 7 to 12.") + 3);
  options.max_tokens = 0;
  const GenerationResult none = ask("Count from 7 to 12.", options);
  EXPECT_EQ(none.reason, StopReason::kMaxTokens);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.decode_tps(), 0);
}

TEST_P(Generation, ContinuesAfterTheTokenLimitAsIfItHadNotBeenThere) {
  GenerationOptions options;
  options.max_tokens = 4;
  std::string text = ask("Count from 7 to 12.", options).text;
  const auto rest = generate(*timeline_, *sampler_, {});
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(text + rest.value().text, "7, 8, 9, 10, 11, 12.");
}

TEST_P(Generation, StopsAtTheNextTokenWhenItIsCancelled) {
  CancelFlag cancel;
  GenerationOptions options;
  options.cancel = &cancel;
  int calls = 0;
  const GenerationResult result = ask("Count from 7 to 12.", options, [&](std::string_view) {
    if (++calls == 2) cancel.request();
  });
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(timeline_->token_count(), prompt_tokens("Count from 7 to 12.") + result.tokens.size());
  EXPECT_FALSE(timeline_->poisoned());
  cancel.clear();
  const auto rest = generate(*timeline_, *sampler_, options);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(result.text + rest.value().text, "7, 8, 9, 10, 11, 12.");
}

TEST_P(Generation, StopsWhenTheContextIsFull) {
  const std::size_t prompt = prompt_tokens("Count from 7 to 12.");
  timeline_ = mini::timeline(GetParam(), mini::small_context(static_cast<std::uint32_t>(prompt) + 5));
  const GenerationResult result = ask("Count from 7 to 12.");
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_EQ(result.tokens.size(), 5u);
  EXPECT_EQ(timeline_->free_tokens(), 0u);
  EXPECT_FALSE(timeline_->poisoned());
}

TEST_P(Generation, TheSameSeedWritesTheSameTextAndOthersDiffer) {
  SamplingOptions options;
  options.temperature = 3;
  options.top_k = 0;
  options.top_p = 1;
  GenerationOptions limits;
  limits.max_tokens = 30;
  const auto text = [&](std::uint32_t seed) {
    options.seed = seed;
    sampler_ = mini::sampler(GetParam(), options);
    return ask("Hello!", limits).tokens;
  };
  const Tokens first = text(1);
  EXPECT_EQ(text(1), first);
  EXPECT_NE(text(2), first);
  EXPECT_NE(text(3), text(4));
}

TEST_P(Generation, NeedsAPrompt) {
  timeline_->reset();
  const auto result = generate(*timeline_, *sampler_, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
}

TEST_P(Generation, RefusesOptionsThatMakeNoSense) {
  ASSERT_TRUE(timeline_->prefill(mini::tokens(GetParam(), "Hello!")).ok());
  GenerationOptions negative;
  negative.max_tokens = -2;
  GenerationOptions empty_stop;
  empty_stop.stop_strings = {"x", ""};
  for (const GenerationOptions& options : {negative, empty_stop}) {
    const auto result = generate(*timeline_, *sampler_, options);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
  }
}

TEST_P(Generation, ReportsAFailedDecodeAfterTheTextThatCameBefore) {
  std::string streamed;
  timeline_->reset();
  ASSERT_TRUE(timeline_->prefill(mini::tokens(GetParam(), mini::question("Hello!"))).ok());
  llama_set_abort_callback(
      timeline_->raw(), [](void*) { return true; }, nullptr);
  const auto result = generate(*timeline_, *sampler_, {}, [&](std::string_view text) { streamed += text; });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kEngine);
  EXPECT_EQ(streamed, "Hello");
  EXPECT_TRUE(timeline_->poisoned());
}

INSTANTIATE_TEST_SUITE_P(Engine, Generation, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

TEST(StopReason, HasAStableName) {
  EXPECT_EQ(stop_reason_name(StopReason::kEndOfText), "end");
  EXPECT_EQ(stop_reason_name(StopReason::kStopString), "stop_string");
  EXPECT_EQ(stop_reason_name(StopReason::kMaxTokens), "max_tokens");
  EXPECT_EQ(stop_reason_name(StopReason::kContextFull), "context_full");
  EXPECT_EQ(stop_reason_name(StopReason::kCancelled), "cancelled");
  EXPECT_EQ(stop_reason_name(StopReason::kConstraint), "constraint");
}

}  // namespace
}  // namespace kazeia
