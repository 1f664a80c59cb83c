// Two plots of rows: ratios with their intervals, and sizes made of parts. Each is a table whose text stays as large as
// the page's, with a small SVG in every row.
#pragma once

#include <string>
#include <vector>

namespace kazeia::bench::report {

struct RatioRow {
  std::string name;  // not escaped
  double median = 0;
  double low = 0;
  double high = 0;
  std::string verdict;  // "faster"
  bool result = true;
  bool better = false;  // both false: no difference
  bool worse = false;
  std::string title{};
};
// All rows share one axis, with a line at 1. Empty without rows.
std::string ratio_plot(const std::vector<RatioRow>& rows, const std::string& name_title,
                       const std::string& ratio_title);

struct SizePart {
  std::string name;  // not escaped
  double bytes = 0;
};
struct SizeRow {
  std::string name;
  double bytes = 0;               // the whole
  std::vector<SizePart> parts{};  // at most the whole together; empty: one piece
  bool upstream = false;
  bool result = true;
  std::string title{};
};
// Bars of one scale; under a bar that has parts, what they are. Empty without rows.
std::string size_bars(const std::vector<SizeRow>& rows);

}  // namespace kazeia::bench::report
