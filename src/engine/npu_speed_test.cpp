#include "engine/npu_speed.h"

#include <gtest/gtest.h>

namespace kazeia {
namespace {

TEST(NpuSpeed, RecommendsTheWidthFromWhichOnTheNpuIsAlwaysFaster) {
  const std::vector<WidthSpeed> widths = {{32, 50, 70}, {64, 80, 72}, {128, 71, 73}, {256, 120, 74}, {512, 150, 75}};
  EXPECT_EQ(recommended_min_tokens(widths), 256u);  // not 64: the CPU wins once more after it
}

TEST(NpuSpeed, RecommendsNothingIfTheCpuIsFasterAtTheWidestPiece) {
  EXPECT_EQ(recommended_min_tokens(std::vector<WidthSpeed>{{32, 90, 70}, {512, 60, 75}}), 0u);
  EXPECT_EQ(recommended_min_tokens({}), 0u);
}

}  // namespace
}  // namespace kazeia
