#include "base/units.h"

#include <gtest/gtest.h>

namespace kazeia {
namespace {

TEST(Units, BytesChangeUnitAtEachPowerOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1024.0 KiB");
  EXPECT_EQ(format_bytes(kMiB), "1.0 MiB");
  EXPECT_EQ(format_bytes(2 * kGiB + 368 * kMiB), "2.36 GiB");
}

TEST(Units, DurationsReadAsPeopleSayThem) {
  EXPECT_EQ(format_duration(0.84), "0.8 ms");
  EXPECT_EQ(format_duration(999.9), "999.9 ms");
  EXPECT_EQ(format_duration(12'340), "12.3 s");
  EXPECT_EQ(format_duration(119'900), "119.9 s");
  EXPECT_EQ(format_duration(250'000), "4 min 10 s");
}

TEST(Units, CountsKeepSmallNumbersExact) {
  EXPECT_EQ(format_count(9'999), "9999");
  EXPECT_EQ(format_count(248'320), "248 k");
  EXPECT_EQ(format_count(3'950'000), "3.95 M");
  EXPECT_EQ(format_count(4'020'000'000), "4.02 G");
}

}  // namespace
}  // namespace kazeia
