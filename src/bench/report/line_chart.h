// Points with intervals over depth, length, time or history, as an inline SVG that scales with its width. Values are
// written beside their points: a tablet has no pointer that could hover.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report/axis.h"

namespace kazeia::bench::report {

struct ChartPoint {
  double x = 0;
  double value = 0;
  double low = 0;  // of its interval; the same as `value` for a sample without one
  double high = 0;
  // Not empty: why it is no result. It is hollow then, and no line leads to it but a dashed one through a series
  // without any result. Not escaped.
  std::string no_result{};
  std::string title{};   // what it is in words, shown when it is pointed at; not escaped
  std::string target{};  // where it leads when it is touched, "#r-0123456789ab"; empty: nowhere
};

enum class Side { kKazeia, kUpstream };  // colour and form of the marks

struct ChartSeries {
  std::string name;  // written at its end if there is more than one; not escaped
  Side side = Side::kKazeia;
  std::vector<ChartPoint> points;  // by x
};

struct ChartTick {
  double x = 0;
  std::string text;  // not escaped
};

struct Trend {  // a straight line from one point to another
  double from_x = 0, from_value = 0, to_x = 0, to_value = 0;
};

struct LineChart {
  std::string title;   // for those who hear the page; not escaped
  std::string unit;    // of the values, as in records
  std::string x_name;  // "depth, tokens"
  Axis x = Axis::linear(0, 1, 1);
  std::vector<ChartTick> x_ticks{};  // those of `x` if empty; those that would overlap are left out
  // Otherwise the axis shows the values' own span, or this share of the largest if that is wider: the reader has to be
  // told. 1: it begins at 0.
  double span = 1;
  std::vector<ChartSeries> series;
  std::optional<Trend> trend{};
  int width = 560;  // units of the drawing; text is 16 high
  int height = 300;
};

// An <svg class="chart"> in a box that scrolls where the screen is narrower than text can be read; nothing without
// points.
std::string svg(const LineChart& chart);

// HTML: which points are hollow, and why; empty if none is.
std::string hollow_note(const LineChart& chart);

}  // namespace kazeia::bench::report
