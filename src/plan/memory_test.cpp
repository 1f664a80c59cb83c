#include "plan/memory.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace kazeia::plan {
namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

TEST(StateShape, SplitsTheFixedPartFromThePartPerToken) {
  const StateShape shape = state_shape({256, 1000 + 256 * 10, 50}, {512, 1000 + 512 * 10, 50});
  EXPECT_EQ(shape.bytes_per_token, 10u);
  EXPECT_EQ(shape.fixed_bytes, 1050u);
  EXPECT_EQ(shape.bytes(4096), 1050u + 40960u);
}

TEST(StateShape, RoundsTheBytesPerTokenUp) {
  const StateShape shape = state_shape({100, 1000, 0}, {103, 1010, 0});
  EXPECT_EQ(shape.bytes_per_token, 4u);
  EXPECT_GE(shape.bytes(103), 1010u);
}

TEST(StateShape, OfAPurelyRecurrentModelDoesNotGrow) {
  const StateShape shape = state_shape({256, 5000, 100}, {512, 5000, 100});
  EXPECT_EQ(shape.bytes_per_token, 0u);
  EXPECT_EQ(shape.bytes(1u << 30), 5100u);
}

TEST(StateShape, SaturatesInsteadOfWrappingAround) {
  const StateShape shape{kHuge - 10, kHuge / 2};
  EXPECT_EQ(shape.bytes(0), kHuge - 10);
  EXPECT_EQ(shape.bytes(3), kHuge);
}

TEST(LargestContext, IsAMultipleOf256ThatStillFits) {
  const StateShape shape{1000, 10};
  const std::uint32_t tokens = largest_context(shape, 1000 + 10 * 1000, 1u << 20);
  EXPECT_EQ(tokens, 768u);
  EXPECT_LE(shape.bytes(tokens), 11000u);
}

TEST(LargestContext, IsZeroWhenNothingUsefulFits) {
  EXPECT_EQ(largest_context({1000, 10}, 1000 + 10 * 255, 1u << 20), 0u);
  EXPECT_EQ(largest_context({1000, 10}, 10, 1u << 20), 0u);
}

TEST(LargestContext, StopsAtTheLimit) {
  EXPECT_EQ(largest_context({0, 1}, kHuge, 2048), 2048u);
  EXPECT_EQ(largest_context({100, 0}, 200, 2048), 2048u);
}

TEST(Fits, AcceptsAnExactFitAndRefusesOneByteMore) {
  EXPECT_TRUE(fits(100, 100));
  EXPECT_FALSE(fits(101, 100));
}

TEST(Fits, AcceptsEverythingWhenTheFreeMemoryIsUnknown) {
  EXPECT_TRUE(fits(kHuge, 0));
}

}  // namespace
}  // namespace kazeia::plan
