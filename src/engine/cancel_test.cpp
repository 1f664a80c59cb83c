// Stopping a prefill: between pieces and in the middle of one.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"
#include "engine/snapshot.h"

namespace kazeia {
namespace {

class CancelPrefill : public mini::EachModel {};

TimelineOptions long_context() {
  TimelineOptions options = mini::small_context(4096);
  options.ubatch_tokens = 512;
  return options;
}

// What is left must be worth as much as a state that was never interrupted.
void expect_valid_after(Timeline& timeline, const std::string& file, std::span<const Token> text) {
  EXPECT_FALSE(timeline.poisoned());
  EXPECT_TRUE(timeline.logits().empty());
  const std::size_t kept = timeline.token_count();
  EXPECT_EQ(timeline.tokens(), Tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(kept)));
  EXPECT_TRUE(state_ends_at(timeline.raw(), kept));
  const Status rest = timeline.prefill(text.subspan(kept));
  ASSERT_TRUE(rest.ok()) << rest.error().sentence();
  const auto fresh = mini::timeline(file, long_context());
  ASSERT_TRUE(fresh->prefill(text).ok());
  const std::span<const float> a = timeline.logits();
  const std::span<const float> b = fresh->logits();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << i;
}

TEST_P(CancelPrefill, BeforeItBeginsReadsNothing) {
  const auto timeline = mini::timeline(GetParam());
  CancelFlag cancel;
  cancel.request();
  const Status status = timeline->prefill(mini::long_text(GetParam(), 40), {}, &cancel);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(timeline->token_count(), 0u);
}

TEST_P(CancelPrefill, BetweenPiecesKeepsTheWholeOnes) {
  const Tokens text = mini::long_text(GetParam(), 2000);
  const auto timeline = mini::timeline(GetParam(), long_context());
  CancelFlag cancel;
  const Status status = timeline->prefill(
      text,
      [&](std::size_t done, std::size_t) {
        if (done == 1024) cancel.request();
      },
      &cancel);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(timeline->token_count(), 1024u);
  expect_valid_after(*timeline, GetParam(), text);
}

TEST_P(CancelPrefill, WithinAPieceUndoesThatPiece) {
  const Tokens text = mini::long_text(GetParam(), 2000);
  for (const std::size_t pieces_before : {0, 1, 2}) {
    const auto timeline = mini::timeline(GetParam(), long_context());
    CancelFlag cancel;
    std::thread later;
    const auto soon = [&] {
      later = std::thread([&cancel] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        cancel.request();
      });
    };
    if (pieces_before == 0) soon();
    const Status status = timeline->prefill(
        text,
        [&](std::size_t done, std::size_t) {
          if (done == pieces_before * 512) soon();
        },
        &cancel);
    if (later.joinable()) later.join();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
    // A piece takes many times those 3 ms; the machine may still have been busy elsewhere.
    EXPECT_GE(timeline->token_count(), pieces_before * 512);
    EXPECT_LT(timeline->token_count(), text.size());
    expect_valid_after(*timeline, GetParam(), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Timeline, CancelPrefill, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

TEST(RecurrentSnapshot, PutsAHybridStateBackToWhereItWas) {
  const Tokens text = mini::long_text(mini::kHybrid, 200);
  const std::span<const Token> tokens(text);
  const auto timeline = mini::timeline(mini::kHybrid);
  ASSERT_TRUE(timeline->prefill(tokens.first(100)).ok());
  RecurrentSnapshot snapshot;
  ASSERT_TRUE(snapshot.take(timeline->raw(), 100));
  ASSERT_TRUE(timeline->prefill(tokens.subspan(100)).ok());
  EXPECT_FALSE(state_ends_at(timeline->raw(), 100));
  ASSERT_TRUE(snapshot.restore(timeline->raw()));
  EXPECT_TRUE(state_ends_at(timeline->raw(), 100));
}

}  // namespace
}  // namespace kazeia
