#include "bench/report/axis.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kazeia::bench::report {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<std::string> texts(const Axis& axis) {
  std::vector<std::string> all;
  for (const double tick : axis.ticks()) all.push_back(axis.tick_text(tick));
  return all;
}

TEST(Axis, EndsOnRoundNumbersWithRoundTicks) {
  EXPECT_THAT(texts(Axis::linear(0, 9.8, 4)), ElementsAre("0", "5", "10"));
  EXPECT_THAT(texts(Axis::linear(0, 61.8, 4)), ElementsAre("0", "20", "40", "60", "80"));
  EXPECT_THAT(texts(Axis::linear(2.57, 2.62, 4)), ElementsAre("2.56", "2.58", "2.60", "2.62"));
  EXPECT_THAT(texts(Axis::linear(-0.3, 0.2, 4)), ElementsAre("-0.4", "-0.2", "0.0", "0.2"));
}

TEST(Axis, PlacesValuesBetweenItsEndsAndNoneBeyond) {
  const Axis axis = Axis::linear(0, 10, 5);
  EXPECT_DOUBLE_EQ(axis.share(0), 0);
  EXPECT_DOUBLE_EQ(axis.share(5), 0.5);
  EXPECT_DOUBLE_EQ(axis.share(10), 1);
  EXPECT_DOUBLE_EQ(axis.share(-1), 0);
  EXPECT_DOUBLE_EQ(axis.share(11), 1);
}

TEST(Axis, TakesEveryNumber) {
  constexpr double kGreatest = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  for (const auto& [least, most] : std::vector<std::pair<double, double>>{{0, 0},
                                                                          {5, 5},
                                                                          {-5, -5},
                                                                          {-kGreatest, kGreatest},
                                                                          {0, kGreatest},
                                                                          {0, kLeast},
                                                                          {1, 1 + 1e-15},
                                                                          {1e300, 1e301}}) {
    const Axis axis = Axis::linear(least, most, 4);
    EXPECT_GE(axis.ticks().size(), 2U) << least << " to " << most;
    EXPECT_LE(axis.ticks().size(), 13U) << least << " to " << most;
    EXPECT_LT(axis.low(), axis.high());
    for (const double value : {least, most, 0.0}) {
      EXPECT_GE(axis.share(value), 0) << value;
      EXPECT_LE(axis.share(value), 1) << value;
    }
    for (const std::string& text : texts(axis)) EXPECT_LE(text.size(), 10U) << text;
  }
}

TEST(Axis, OfLengthsHasAPlaceForNothingAndKeepsDoublingsAlike) {
  const Axis axis = Axis::lengths({32768, 0, 16384, 8192, 8192});
  EXPECT_THAT(texts(axis), ElementsAre("0", "8192", "16384", "32768"));
  EXPECT_DOUBLE_EQ(axis.share(0), 0);
  EXPECT_DOUBLE_EQ(axis.share(32768), 1);
  EXPECT_NEAR(axis.share(32768) - axis.share(16384), axis.share(16384) - axis.share(8192), 0.01);
  EXPECT_DOUBLE_EQ(Axis::lengths({512}).share(512), 0.5);
}

TEST(Axis, OfRatiosHasOneOnItAndIsEvenToBothSides) {
  const Axis axis = Axis::ratios({0.5, 2});
  EXPECT_DOUBLE_EQ(axis.share(1), 0.5);
  EXPECT_NEAR(axis.share(2) - axis.share(1), axis.share(1) - axis.share(0.5), 1e-12);
  EXPECT_THAT(texts(axis), ElementsAre("0.5", "0.8", "0.9", "1", "1.1", "1.25", "1.5", "2"));
  const Axis narrow = Axis::ratios({1.001, 1.002});
  EXPECT_LT(narrow.low(), 1);
  EXPECT_GT(narrow.share(1.1), 0.9) << "a thousandth fills the plot";
  for (const double strange : {0.0, -1.0, 1e300, 1e-300}) {
    EXPECT_GE(Axis::ratios({strange}).share(strange), 0);
    EXPECT_LE(Axis::ratios({strange}).share(strange), 1);
  }
}

}  // namespace
}  // namespace kazeia::bench::report
