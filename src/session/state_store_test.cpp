#include "session/state_store.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/cancel.h"

namespace kazeia {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kRow = 16;        // attention bytes per token
constexpr std::uint64_t kRecurrent = 64;  // bytes of a recurrent state

StateLayout layout() {
  return {.attention = {{1, 8}, {1, 8}}, .recurrent = {{0, 64}}};
}

Tokens text(std::size_t length, Token first = 0) {
  Tokens tokens;
  for (std::size_t i = 0; i < length; ++i) tokens.push_back(first + static_cast<Token>(i));
  return tokens;
}

class Store : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("kazeia-store-{}", ::getpid());
    store_.set_layout(layout());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void keep_attention(StateStore& store, const Tokens& tokens, std::size_t from, std::size_t to) {
    const std::span<const Token> all = tokens;
    store.keep({.kind = PartKind::kAttention,
                .from = from,
                .to = to,
                .before = hash_of_prefix(all.first(from)),
                .after = hash_of_prefix(all.first(to))},
               {tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to)},
               std::vector<std::byte>((to - from) * kRow, std::byte{1}), to - from);
  }
  static void keep_recurrent(StateStore& store, const Tokens& tokens, std::size_t at, std::size_t cost = 10) {
    const PrefixHash hash = hash_of_prefix(std::span<const Token>(tokens).first(at));
    store.keep({.kind = PartKind::kRecurrent, .from = at, .to = at, .before = hash, .after = hash}, {},
               std::vector<std::byte>(kRecurrent, std::byte{2}), cost);
  }
  static StateOrigin origin() {
    return {.model_hash = std::string(32, 'a'), .engine_version = "1", .upstream_version = "2", .layout = {}};
  }

  StateStore store_{4096};
  std::string folder_;
};

TEST_F(Store, JoinsPartsToTheLongestStateOfAText) {
  const Tokens all = text(100);
  keep_attention(store_, all, 0, 40);
  keep_attention(store_, all, 40, 80);
  keep_attention(store_, all, 90, 100);  // there is a gap in front of it
  const StateMatch match = store_.best(all, 0, 99, false);
  EXPECT_EQ(match.token_count, 80u);
  EXPECT_EQ(match.attention.size(), 2u);
}

TEST_F(Store, StartsFromTheRowsThatAreInTheTimeline) {
  const Tokens all = text(100);
  keep_attention(store_, all, 40, 80);
  EXPECT_EQ(store_.best(all, 0, 99, false).token_count, 0u);
  EXPECT_EQ(store_.best(all, 50, 99, false).token_count, 80u);
}

TEST_F(Store, UsesThePartOfARangeThatATextShares) {
  const Tokens all = text(100);
  keep_attention(store_, all, 0, 100);
  Tokens other = text(60);
  other.push_back(7777);
  EXPECT_EQ(store_.best(other, 0, 60, false).token_count, 60u);
}

// Would fail if parts were found by their positions.
TEST_F(Store, DoesNotTakeRowsThatAnotherTextLedTo) {
  const Tokens all = text(100);
  keep_attention(store_, all, 40, 100);
  Tokens other = all;
  other[3] = 9999;
  EXPECT_EQ(store_.best(other, 50, 99, false).token_count, 50u);
}

TEST_F(Store, OfARecurrentModelGoesToTheLastCheckpointThatItsRowsReach) {
  const Tokens all = text(100);
  keep_attention(store_, all, 0, 70);
  for (const std::size_t at : {20, 50, 90}) keep_recurrent(store_, all, at);
  const StateMatch match = store_.best(all, 0, 99, true);
  EXPECT_EQ(match.token_count, 50u);
  ASSERT_NE(match.recurrent, nullptr);
  EXPECT_EQ(store_.best(all, 95, 99, true).token_count, 90u);
  EXPECT_EQ(store_.best(all, 95, 89, true).token_count, 50u) << "never beyond the limit";
}

TEST_F(Store, DropsWhatSavesTheFewestTokensAndStaysUnderItsBudget) {
  StateStore small(3 * kRecurrent);
  small.set_layout(layout());
  const Tokens all = text(100);
  keep_recurrent(small, all, 10, 5);
  keep_recurrent(small, all, 20, 500);
  keep_recurrent(small, all, 30, 500);
  keep_recurrent(small, all, 40, 500);
  EXPECT_EQ(small.best(all, 100, 15, true).token_count, 0u) << "the cheap one is gone";
  EXPECT_EQ(small.best(all, 100, 25, true).token_count, 20u);
  EXPECT_LE(small.counts().most_bytes_in_memory, 3 * kRecurrent);
  EXPECT_EQ(small.counts().dropped, 1u);
}

TEST_F(Store, DropsWhatWasNotUsedForLong) {
  StateStore small(2 * kRecurrent);
  small.set_layout(layout());
  const Tokens all = text(100);
  keep_recurrent(small, all, 10);
  keep_recurrent(small, all, 20);
  for (int i = 0; i < 5; ++i) {
    small.tick();
    EXPECT_EQ(small.best(all, 100, 15, true).token_count, 10u);
  }
  keep_recurrent(small, all, 30);
  EXPECT_EQ(small.best(all, 100, 25, true).token_count, 10u) << "20 was older";
  EXPECT_EQ(small.best(all, 100, 35, true).token_count, 30u);
}

TEST_F(Store, KeepsNothingThatIsLargerThanItsBudget) {
  StateStore none(0);
  none.set_layout(layout());
  keep_recurrent(none, text(10), 10);
  EXPECT_EQ(none.counts().parts_in_memory, 0u);
}

TEST_F(Store, WritesColdPartsToItsFolderAndFindsThemAfterARestart) {
  const Tokens all = text(400);
  std::vector<std::string> remarks;
  {
    StateStore store(8 * kRecurrent);
    store.set_layout(layout());
    ASSERT_TRUE(store.attach(folder_, origin(), 1 << 20, remarks).ok());
    for (std::size_t at = 10; at <= 80; at += 10) {
      store.tick();
      keep_recurrent(store, all, at);
    }
    const CancelFlag never;
    ASSERT_TRUE(store.write_cold(never).ok());
    ASSERT_TRUE(store.flush().ok());
    EXPECT_EQ(store.counts().parts_on_disk, 4u) << "half of the budget is safe";
    ASSERT_TRUE(store.write_cold(never).ok());
    EXPECT_EQ(store.counts().parts_on_disk, 4u) << "once is enough";
  }
  StateStore again(8 * kRecurrent);
  ASSERT_TRUE(again.attach(folder_, origin(), 1 << 20, remarks).ok());
  EXPECT_THAT(remarks, IsEmpty());
  EXPECT_EQ(again.best(all, 400, 399, true).token_count, 40u);
  EXPECT_EQ(*again.layout(), layout());
}

TEST_F(Store, RemovesFilesOfAnotherModelAndDamagedOnesWithASentence) {
  const Tokens all = text(100);
  const CancelFlag never;
  std::vector<std::string> remarks;
  {
    StateStore store(2 * kRecurrent);
    store.set_layout(layout());
    ASSERT_TRUE(store.attach(folder_, origin(), 1 << 20, remarks).ok());
    keep_recurrent(store, all, 10);
    keep_recurrent(store, all, 20);
    ASSERT_TRUE(store.write_cold(never).ok());
  }
  std::ofstream(folder_ + "/recurrent-9-9-0000.state") << "not a state";
  StateOrigin other = origin();
  other.model_hash = std::string(32, 'b');
  StateStore again(4096);
  ASSERT_TRUE(again.attach(folder_, other, 1 << 20, remarks).ok());
  EXPECT_THAT(remarks, ElementsAre(HasSubstr("read again"), HasSubstr("another model")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Store, HoldsNoMoreInItsFolderThanItMay) {
  std::vector<std::string> remarks;
  ASSERT_TRUE(store_.attach(folder_, origin(), 100 * kRow, remarks).ok());
  const Tokens all = text(400);
  for (std::size_t from = 0; from < 400; from += 40) {
    store_.tick();
    PartHeader header{.kind = PartKind::kAttention, .from = from, .to = from + 40};
    const std::span<const Token> tokens = all;
    header.before = hash_of_prefix(tokens.first(from));
    header.after = hash_of_prefix(tokens.first(from + 40));
    auto writer = store_.begin_file(header, tokens.subspan(from, 40));
    ASSERT_TRUE(writer.ok()) << writer.error().sentence();
    ASSERT_TRUE(writer->write(std::vector<std::byte>(40 * kRow)).ok());
    store_.finish_file(std::move(writer).value(), header);
    ASSERT_TRUE(store_.flush().ok());
    EXPECT_LE(store_.counts().bytes_on_disk, 100 * kRow);
  }
}

TEST_F(Store, ForgetsAllPartsWhenTheLayoutIsAnother) {
  keep_recurrent(store_, text(10), 10);
  StateLayout wider = layout();
  wider.recurrent[0].row_bytes = 128;
  EXPECT_FALSE(store_.set_layout(wider));
  EXPECT_EQ(store_.counts().parts_in_memory, 0u);
  EXPECT_EQ(store_.counts().bytes_in_memory, 0u);
}

}  // namespace
}  // namespace kazeia
