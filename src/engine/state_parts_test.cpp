// A state taken apart and put together again computes what it computed before, bit for bit.
#include "engine/state_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"

namespace kazeia {
namespace {

using mini::EachModel;

// What a timeline consists of at one token count, copied.
struct Parts {
  Tokens tokens;
  StateLayout layout;
  std::vector<std::byte> attention;  // rows of all tokens
  std::vector<std::byte> recurrent;

  AttentionRows rows() const { return {0, tokens.size(), attention}; }
};

ByteSink into(std::vector<std::byte>& bytes) {
  return [&bytes](std::span<const std::byte> piece) -> Status {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return {};
  };
}

std::vector<std::byte> attention_of(const Timeline& timeline, std::size_t from, std::size_t to) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(timeline.copy_attention(from, to, into(bytes)).ok());
  return bytes;
}

std::vector<std::byte> recurrent_of(const Timeline& timeline) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(timeline.copy_recurrent(into(bytes)).ok());
  return bytes;
}

Parts parts_of(const Timeline& timeline) {
  auto layout = timeline.state_layout();
  EXPECT_TRUE(layout.ok()) << (layout.ok() ? "" : layout.error().sentence());
  return {timeline.tokens(), *layout, attention_of(timeline, 0, timeline.token_count()), recurrent_of(timeline)};
}

Tokens numbers(std::size_t count, int seed) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>((i * 37 + static_cast<std::size_t>(seed) * 101) % 400 + 20));
  return tokens;
}

// The logits of the next ten steps.
std::vector<float> future(Timeline& timeline) {
  std::vector<float> all;
  for (const Token token : numbers(10, 77)) {
    EXPECT_TRUE(timeline.decode(token).ok());
    all.insert(all.end(), timeline.logits().begin(), timeline.logits().end());
  }
  return all;
}

TEST_P(EachModel, GoesOnInAnotherTimelineAsIfNothingHadHappened) {
  const auto first = mini::timeline(GetParam());
  ASSERT_TRUE(first->prefill(numbers(130, 1)).ok());
  const Parts parts = parts_of(*first);
  EXPECT_EQ(parts.attention.size(), 130 * parts.layout.attention_bytes_per_token());
  EXPECT_EQ(parts.recurrent.size(), parts.layout.recurrent_bytes());

  const auto second = mini::timeline(GetParam(), mini::small_context(512));
  const std::vector rows{parts.rows()};
  ASSERT_TRUE(second->restore(parts.tokens, 0, rows, parts.recurrent, parts.layout).ok());
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_TRUE(second->logits().empty());
  EXPECT_EQ(future(*second), future(*first));
}

TEST_P(EachModel, GoesBackToAnEarlierTokenWhoseRowsAreStillThere) {
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(numbers(64, 1)).ok());
  const Parts parts = parts_of(*timeline);
  const std::vector<float> expected = future(*timeline);
  ASSERT_TRUE(timeline->prefill(numbers(200, 2)).ok());

  for (int again = 0; again < 3; ++again) {
    ASSERT_TRUE(timeline->restore(parts.tokens, parts.tokens.size(), {}, parts.recurrent, parts.layout).ok());
    EXPECT_EQ(timeline->token_count(), 64u);
    EXPECT_EQ(future(*timeline), expected);
  }
}

// Would fail if a range were written to other cells, or a kept row were lost.
TEST_P(EachModel, IsPutTogetherFromOverlappingRanges) {
  const auto timeline = mini::timeline(GetParam());
  const Tokens text = numbers(100, 1);
  // In two pieces, because the rows of a token depend on the width of the piece that it was read in.
  ASSERT_TRUE(timeline->prefill(std::span(text).first(30)).ok());
  ASSERT_TRUE(timeline->prefill(std::span(text).subspan(30)).ok());
  const Parts parts = parts_of(*timeline);
  const std::vector<float> expected = future(*timeline);

  // Another text with the same first 30 tokens.
  timeline->reset();
  ASSERT_TRUE(timeline->prefill(std::span(text).first(30)).ok());
  ASSERT_TRUE(timeline->prefill(numbers(150, 5)).ok());
  const auto source = mini::timeline(GetParam());
  ASSERT_TRUE(source->restore(parts.tokens, 0, std::vector{parts.rows()}, parts.recurrent, parts.layout).ok());
  const std::vector<std::byte> middle = attention_of(*source, 20, 71);
  const std::vector<std::byte> end = attention_of(*source, 70, 100);
  const std::vector<AttentionRows> rows{{20, 71, middle}, {70, 100, end}};
  ASSERT_TRUE(timeline->restore(parts.tokens, 30, rows, parts.recurrent, parts.layout).ok());
  EXPECT_EQ(future(*timeline), expected);
}

TEST_P(EachModel, CanBePutIntoATimelineThatFailed) {
  const auto source = mini::timeline(GetParam());
  ASSERT_TRUE(source->prefill(numbers(40, 1)).ok());
  const Parts parts = parts_of(*source);
  const auto full = mini::timeline(GetParam(), mini::small_context(64));
  EXPECT_FALSE(full->prefill(numbers(65, 3)).ok());
  ASSERT_TRUE(full->restore(parts.tokens, 0, std::vector{parts.rows()}, parts.recurrent, parts.layout).ok());
  EXPECT_EQ(future(*full), future(*source));
}

TEST_P(EachModel, RefusesPartsThatDoNotFitAndStaysAsItWas) {
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(numbers(50, 1)).ok());
  const Parts parts = parts_of(*timeline);
  const auto refused = [&](std::span<const Token> tokens, std::size_t kept, std::vector<AttentionRows> rows,
                           std::span<const std::byte> recurrent) {
    const Status status = timeline->restore(tokens, kept, rows, recurrent, parts.layout);
    return !status.ok() && timeline->tokens() == parts.tokens;
  };
  const Tokens longer = numbers(60, 1);
  EXPECT_TRUE(refused(longer, 50, {}, parts.recurrent)) << "rows missing";
  EXPECT_TRUE(refused(longer, 50, {{55, 60, std::span(parts.attention).first(0)}}, parts.recurrent)) << "a gap";
  EXPECT_TRUE(refused(longer, 50, {{50, 60, parts.attention}}, parts.recurrent)) << "wrong size";
  EXPECT_TRUE(refused(numbers(50, 2), 50, {}, parts.recurrent)) << "other tokens";
  EXPECT_TRUE(refused({}, 0, {}, parts.recurrent)) << "nothing";
  EXPECT_TRUE(refused(numbers(1025, 1), 50, {}, parts.recurrent)) << "more than the context";
  if (!parts.recurrent.empty()) {
    EXPECT_TRUE(refused(parts.tokens, 50, {}, std::span(parts.recurrent).first(8))) << "half a recurrent state";
  }
  Tokens outside = parts.tokens;
  outside.back() = 1 << 30;
  EXPECT_TRUE(refused(outside, 49, {}, parts.recurrent)) << "a token that is not in the vocabulary";
}

// Upstream compares types and row sizes with its own before it asks for a row.
TEST_P(EachModel, IsEmptyAndUsableAfterALayoutThatUpstreamRefuses) {
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(numbers(50, 1)).ok());
  Parts parts = parts_of(*timeline);
  StateLayout wrong = parts.layout;
  wrong.attention[1].row_bytes += 2;
  parts.attention.resize(50 * wrong.attention_bytes_per_token());
  const Status status =
      timeline->restore(parts.tokens, 0, std::vector{AttentionRows{0, 50, parts.attention}}, parts.recurrent, wrong);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kEngine);
  EXPECT_EQ(timeline->token_count(), 0u);
  EXPECT_TRUE(timeline->prefill(numbers(50, 1)).ok());
}

TEST_P(EachModel, StopsCopyingWhenTheSinkSaysSo) {
  const auto timeline = mini::timeline(GetParam());
  ASSERT_TRUE(timeline->prefill(numbers(50, 1)).ok());
  int calls = 0;
  const Status status = timeline->copy_attention(0, 50, [&](std::span<const std::byte>) -> Status {
    ++calls;
    return Error(ErrorCode::kCancelled, "enough");
  });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(calls, 1);
}

// What `kazeia bench` decodes at a depth with.
TEST_P(EachModel, GoesOnBehindTokensThatWereNotRead) {
  const auto timeline = mini::timeline(GetParam(), mini::small_context(2048));
  ASSERT_TRUE(timeline->prefill(numbers(70, 1)).ok());
  const std::vector<std::byte> recurrent = recurrent_of(*timeline);
  const std::vector<std::byte> known = attention_of(*timeline, 0, 70);
  const std::vector<std::byte> last = attention_of(*timeline, 6, 70);
  ASSERT_TRUE(timeline->append_unread(numbers(1500, 2)).ok());
  EXPECT_EQ(timeline->token_count(), 1570u);
  EXPECT_TRUE(timeline->logits().empty());
  EXPECT_EQ(recurrent_of(*timeline), recurrent);
  EXPECT_EQ(attention_of(*timeline, 0, 70), known);
  EXPECT_EQ(attention_of(*timeline, 70, 134), last);
  EXPECT_EQ(attention_of(*timeline, 70 + 22 * 64, 70 + 23 * 64), last);
  EXPECT_EQ(attention_of(*timeline, 1564, 1570), attention_of(*timeline, 92, 98));  // the begun repetition at the end

  const std::vector<float> after = future(*timeline);
  EXPECT_TRUE(std::all_of(after.begin(), after.end(), [](float logit) { return std::isfinite(logit); }));
  EXPECT_EQ(timeline->token_count(), 1580u);
  ASSERT_TRUE(timeline->prefill(numbers(100, 3)).ok());
  EXPECT_TRUE(std::isfinite(timeline->logits()[0]));
  ASSERT_TRUE(timeline->append_unread(numbers(300, 4)).ok());
  EXPECT_EQ(timeline->token_count(), 1980u);
  EXPECT_TRUE(timeline->decode(30).ok());

  // What was not read leaves no trace.
  timeline->reset();
  ASSERT_TRUE(timeline->prefill(numbers(70, 1)).ok());
  const auto fresh = mini::timeline(GetParam(), mini::small_context(2048));
  ASSERT_TRUE(fresh->prefill(numbers(70, 1)).ok());
  EXPECT_EQ(future(*timeline), future(*fresh));
}

TEST_P(EachModel, AppendsNothingUnreadThatDoesNotFitOrHasNothingInFrontOfIt) {
  const auto timeline = mini::timeline(GetParam());
  EXPECT_EQ(timeline->append_unread(numbers(10, 1)).error().code(), ErrorCode::kUnsupported);
  ASSERT_TRUE(timeline->prefill(numbers(50, 1)).ok());
  EXPECT_EQ(timeline->append_unread(numbers(975, 1)).error().code(), ErrorCode::kTooLarge);
  EXPECT_EQ(timeline->token_count(), 50u);
  EXPECT_FALSE(timeline->logits().empty());
  EXPECT_TRUE(timeline->append_unread(numbers(974, 1)).ok());
}

TEST(StateParts, OfATimelineWithoutFlashAttentionAreUnsupported) {
  TimelineOptions options = mini::small_context();
  options.flash_attention = false;
  const auto timeline = mini::timeline(mini::kDense, options);
  ASSERT_TRUE(timeline->prefill(numbers(20, 1)).ok());
  const auto layout = timeline->state_layout();
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(timeline->append_unread(numbers(5, 1)).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(timeline->token_count(), 20u);
}

}  // namespace
}  // namespace kazeia
