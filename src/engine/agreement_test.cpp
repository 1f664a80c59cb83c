#include "engine/agreement.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace kazeia {
namespace {

const std::vector<float> kRow = {1.0f, -2.0f, 0.5f, 4.0f};

TEST(Agreement, IsOneForTheSameRowWhateverIsAddedToIt) {
  EXPECT_DOUBLE_EQ(agreement(kRow, kRow), 1.0);
  std::vector<float> shifted = kRow;
  for (float& value : shifted) value += 100.0f;
  EXPECT_NEAR(agreement(kRow, shifted), 1.0, 1e-6);
}

TEST(Agreement, IsMinusOneForTheOppositeAndLowForTheUnrelated) {
  std::vector<float> opposite = kRow;
  for (float& value : opposite) value = -value;
  EXPECT_NEAR(agreement(kRow, opposite), -1.0, 1e-6);
  EXPECT_LT(std::abs(agreement(std::vector<float>{1, -1, 1, -1}, std::vector<float>{1, 1, -1, -1})), 1e-6);
}

TEST(Agreement, IsMinusOneIfARowIsConstantOrNotANumber) {
  EXPECT_EQ(agreement(kRow, std::vector<float>(4, 0.5f)), -1.0);
  EXPECT_EQ(agreement(kRow, std::vector<float>{1, 2, std::nanf(""), 4}), -1.0);
  EXPECT_EQ(agreement(std::vector<float>{1, 2, HUGE_VALF, 4}, kRow), -1.0);
}

}  // namespace
}  // namespace kazeia
