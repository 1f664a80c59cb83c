#include "bench/report/line_chart.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/report/page_reader.h"

namespace kazeia::bench::report {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

ReadPage read(const LineChart& chart) {
  ReadPage page = read_page("<!DOCTYPE html>" + svg(chart));
  EXPECT_EQ(page.error, "");
  return page;
}

std::vector<std::string> texts(const ReadPage& page, std::string_view kind) {
  std::vector<std::string> all;
  for (const PageElement* element : page.with_class(kind)) {
    if (element->name == "text") all.push_back(element->text);
  }
  return all;
}

double number(const PageElement& element, const std::string& attribute) {
  return std::strtod(element.attribute(attribute).c_str(), nullptr);
}

ChartPoint point(double x, double value) {
  return {.x = x, .value = value, .low = value * 0.98, .high = value * 1.02, .title = "t", .target = "#r-1"};
}

LineChart two_sides() {
  LineChart chart{
      .title = "decode", .unit = "tok/s", .x_name = "depth", .x = Axis::lengths({0, 1024, 4096}), .series = {}};
  chart.series.push_back({"kazeia", Side::kKazeia, {point(0, 9.8), point(1024, 9.7), point(4096, 9.5)}});
  chart.series.push_back({"upstream", Side::kUpstream, {point(0, 8.6), point(1024, 8.5), point(4096, 8.3)}});
  return chart;
}

TEST(LineChart, ShowsEveryPointItsValueAndItsSide) {
  const ReadPage page = read(two_sides());
  EXPECT_THAT(page.with_class("point"), SizeIs(6));
  EXPECT_THAT(page.named("polyline"), SizeIs(2));
  EXPECT_THAT(page.with_class("interval"), SizeIs(6));
  EXPECT_THAT(texts(page, "value"), IsSupersetOf({"9.80", "9.70", "9.50", "8.60", "8.50", "8.30"}));
  EXPECT_THAT(texts(page, "name"), ElementsAre("kazeia", "upstream"));
  EXPECT_THAT(texts(page, "axis"), IsSupersetOf({"tok/s", "0", "5", "10", "1024", "4096", "depth"}));
}

TEST(LineChart, PutsMarksWhereTheirValuesAre) {
  const ReadPage page = read(two_sides());
  const std::vector<const PageElement*> circles = page.named("circle");
  ASSERT_THAT(circles, SizeIs(3));
  EXPECT_LT(number(*circles[0], "cx"), number(*circles[1], "cx"));
  EXPECT_LT(number(*circles[0], "cy"), number(*circles[2], "cy")) << "a higher value stands higher";
  const LineChart chart = two_sides();
  for (const PageElement* circle : circles) {
    EXPECT_GE(number(*circle, "cx"), 0);
    EXPECT_LE(number(*circle, "cx"), chart.width);
    EXPECT_GE(number(*circle, "cy"), 0);
    EXPECT_LE(number(*circle, "cy"), chart.height);
  }
}

TEST(LineChart, LeavesAPointHollowAndWithoutALineThatIsNoResult) {
  LineChart chart = two_sides();
  chart.series.pop_back();
  chart.series[0].points[1].no_result = "it varied by <b>7 %</b>";
  const ReadPage page = read(chart);
  EXPECT_THAT(page.with_class("hollow"), SizeIs(1));
  ASSERT_THAT(page.named("polyline"), SizeIs(1));
  const std::string line = page.named("polyline")[0]->attribute("points");
  EXPECT_EQ(std::count(line.begin(), line.end(), ','), 2) << line;
  EXPECT_EQ(hollow_note(chart), "Hollow, no result: 1024: it varied by &lt;b&gt;7 %&lt;/b&gt;.");
  EXPECT_EQ(hollow_note(two_sides()), "");
}

TEST(LineChart, DrawsADashedLineThroughASeriesWithoutAnyResult) {
  LineChart chart = two_sides();
  chart.series.pop_back();
  for (ChartPoint& each : chart.series[0].points) each.no_result = "the record was disturbed";
  const ReadPage page = read(chart);
  EXPECT_THAT(page.with_class("hollow"), SizeIs(3));
  ASSERT_THAT(page.named("polyline"), SizeIs(1));
  EXPECT_TRUE(page.named("polyline")[0]->has_class("none"));
}

TEST(LineChart, LeadsFromAPointToItsRecord) {
  const ReadPage page = read(two_sides());
  ASSERT_THAT(page.named("a"), SizeIs(6));
  EXPECT_EQ(page.named("a")[0]->attribute("href"), "#r-1");
}

TEST(LineChart, EscapesWhatItIsGiven) {
  LineChart chart = two_sides();
  const std::string hostile = "\"><script>alert(1)</script>";
  chart.title = chart.unit = chart.x_name = chart.series[0].name = hostile;
  chart.x_ticks = {{0, hostile}};
  chart.series[0].points[0].title = chart.series[0].points[0].target = hostile;
  const ReadPage page = read(chart);
  EXPECT_THAT(page.named("script"), SizeIs(0));
  EXPECT_EQ(page.named("svg")[0]->attribute("aria-label"), hostile);
}

TEST(LineChart, ShowsBytesInTheUnitOfTheLargest) {
  LineChart chart{.title = "memory", .unit = "bytes", .x_name = "minutes", .x = Axis::linear(0, 2, 2), .series = {}};
  constexpr double kGib = 1024.0 * 1024 * 1024;
  chart.series.push_back({"rss", Side::kKazeia, {point(1, 2.5 * kGib), point(2, 2.75 * kGib)}});
  const ReadPage page = read(chart);
  EXPECT_THAT(texts(page, "value"), IsSupersetOf({"2.50", "2.75"}));
  EXPECT_THAT(texts(page, "axis"), Contains("GiB"));
}

TEST(LineChart, BeginsAtZeroUnlessASpanIsWanted) {
  LineChart chart = two_sides();
  EXPECT_THAT(texts(read(chart), "axis"), Contains("0"));
  chart.x_ticks = {{4096, "deep"}};
  chart.span = 0.1;
  EXPECT_THAT(texts(read(chart), "axis"), Not(Contains("0")));
}

TEST(LineChart, StaysReadableWithThousandsOfPoints) {
  LineChart chart{.title = "soak", .unit = "tok/s", .x_name = "minutes", .x = Axis::linear(0, 5000, 5), .series = {}};
  chart.series.push_back({"decode", Side::kKazeia, {}});
  for (int i = 0; i < 5000; ++i)
    chart.series[0].points.push_back({.x = i * 1.0, .value = 9.0 + i % 7, .low = 9, .high = 9});
  chart.series[0].points[1000].no_result = "disturbed";
  const ReadPage page = read(chart);
  EXPECT_THAT(page.with_class("point"), SizeIs(3)) << "the ends and what is no result; the line tells the rest";
  EXPECT_LE(texts(page, "value").size(), 4U);
}

TEST(LineChart, TakesEveryNumber) {
  constexpr double kGreatest = std::numeric_limits<double>::max();
  for (const std::vector<double>& values :
       std::vector<std::vector<double>>{{0}, {-1, 1}, {kGreatest, -kGreatest}, {1e-310, 1e-309}, {0, 0, 0}}) {
    for (const double span : {1.0, 0.1}) {
      LineChart chart{
          .title = "t", .unit = "bytes", .x_name = "x", .x = Axis::linear(0, 3, 3), .span = span, .series = {}};
      chart.series.push_back({"s", Side::kKazeia, {}});
      for (std::size_t i = 0; i < values.size(); ++i) {
        chart.series[0].points.push_back({static_cast<double>(i), values[i], values[i], values[i], "", "t", ""});
      }
      const std::string text = svg(chart);
      EXPECT_THAT(text, Not(HasSubstr("nan")));
      EXPECT_THAT(text, Not(HasSubstr("inf")));
      EXPECT_THAT(read(chart).with_class("point"), SizeIs(values.size()));
    }
  }
}

TEST(LineChart, IsNothingWithoutPoints) {
  EXPECT_EQ(svg({.title = "t", .unit = "ms", .x_name = "x", .series = {}}), "");
}

}  // namespace
}  // namespace kazeia::bench::report
