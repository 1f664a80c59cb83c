#include "tiles/schedule.h"

#include <gtest/gtest.h>

namespace kazeia::tiles {
namespace {

TEST(Pieces, CoverEveryUnitExactlyOnceInOrder) {
  for (const std::int64_t total : {0, 1, 2, 7, 80, 304, 7760}) {
    for (int threads = 1; threads <= 8; ++threads) {
      Pieces pieces(total, threads, 1);
      std::int64_t covered = 0;
      for (std::int64_t number = 0;; ++number) {
        const Pieces::Range range = pieces.piece(number);
        if (range.first == range.last) break;
        ASSERT_EQ(range.first, covered);
        covered = range.last;
      }
      EXPECT_EQ(covered, total) << threads << " threads";
    }
  }
}

TEST(Pieces, AreTheSameForAThreadThatDrawsOnlySomeOfThem) {
  Pieces all(304, 2, 2);
  Pieces some(304, 2, 2);
  for (std::int64_t number = 0; number < 40; ++number) {
    const Pieces::Range range = all.piece(number);
    if (number % 3 != 0) continue;
    EXPECT_EQ(some.piece(number).first, range.first);
    EXPECT_EQ(some.piece(number).last, range.last);
  }
}

TEST(Pieces, EndSmall) {
  Pieces pieces(304, 2, 1);
  EXPECT_EQ(pieces.piece(0).last, 50);
  std::int64_t last_size = 0;
  for (std::int64_t number = 1;; ++number) {
    const Pieces::Range range = pieces.piece(number);
    if (range.first == range.last) break;
    last_size = range.last - range.first;
  }
  EXPECT_EQ(last_size, 1);
}

}  // namespace
}  // namespace kazeia::tiles
