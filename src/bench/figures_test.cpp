#include "bench/figures.h"

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

TEST(Figures, KnowTheirUnitByTheirName) {
  const Figure decode = make_figure("decode_0", {10, 11, 12}, "upstream_");
  EXPECT_EQ(decode.name, "upstream_decode_0");
  EXPECT_EQ(decode.unit, "tok/s");
  EXPECT_TRUE(decode.higher_is_better);
  EXPECT_DOUBLE_EQ(decode.median, 11);
  EXPECT_GT(decode.variation, 0);
  for (const auto& [name, unit] :
       {std::pair("load_ms", "ms"), std::pair("peak_rss_bytes", "bytes"), std::pair("energy_decode_0", "J/tok")}) {
    EXPECT_EQ(make_figure(name, {1}).unit, unit);
    EXPECT_FALSE(make_figure(name, {1}).higher_is_better);
  }
}

TEST(Figures, RatiosAreThoseOfPairs) {
  const Figure ratio = make_ratio("load_ms", make_figure("load_ms", {20, 10, 5}), make_figure("load_ms", {10, 5, 2.5}));
  EXPECT_EQ(ratio.name, "ratio_load_ms");
  EXPECT_EQ(ratio.unit, "ratio");
  EXPECT_FALSE(ratio.higher_is_better);
  EXPECT_EQ(ratio.samples, (std::vector<double>{2, 2, 2}));
  EXPECT_DOUBLE_EQ(ratio.variation, 0);
}

TEST(SampleTable, KeepsTheOrderInWhichNamesCameUp) {
  SampleTable table;
  table.add("b", 1);
  table.add("a", 2);
  table.add("b", 3);
  ASSERT_EQ(table.rows().size(), 2U);
  EXPECT_EQ(table.rows()[0].first, "b");
  EXPECT_EQ(*table.find("b"), (std::vector<double>{1, 3}));
  EXPECT_EQ(table.find("c"), nullptr);
}

}  // namespace
}  // namespace kazeia::bench
