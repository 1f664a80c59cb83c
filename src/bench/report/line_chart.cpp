#include "bench/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "bench/report/markup.h"

namespace kazeia::bench::report {
namespace {

constexpr double kLeft = 58;
constexpr double kRight = 30;
constexpr double kRightWithNames = 116;
constexpr double kNameGap = 26;  // room for half of the last value
constexpr double kTop = 44;
constexpr double kBottom = 56;
constexpr double kCharacter = 9.2;       // width of one, text being 16 high
constexpr double kLine = 20;             // height of a line of text
constexpr std::size_t kMostMarks = 200;  // more points than that are a line only
constexpr std::size_t kMostLargeMarks = 24;
constexpr std::size_t kLongestName = 12;
constexpr std::size_t kMostReasons = 3;

double width_of(const std::string& text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return kCharacter * static_cast<double>(text.size() - std::count_if(text.begin(), text.end(), continues));
}

// Three digits, also if the last ones are zeros: values beside each other look alike.
std::string label_text(double value) {
  const double size = std::fabs(value);
  if (size == 0 || size >= 1000) return number_text(value);
  return size >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:#.3g}", value);
}

const char* class_of(Side side) {
  return side == Side::kKazeia ? "kazeia" : "upstream";
}

bool has_result(const ChartSeries& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const ChartPoint& point) { return point.no_result.empty(); });
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart);
  std::string text();

 private:
  double x_of(double x) const { return left_ + chart_.x.share(x) * (right_ - left_); }
  double y_of(double value) const { return bottom_ - y_.share(value / unit_.divisor) * (bottom_ - kTop); }
  void add_grid();
  void add_x_axis();
  void add_trend();
  void add_lines(const ChartSeries& series);
  void add_marks(const ChartSeries& series);
  void add_mark(const ChartPoint& point, Side side, double size);
  void add_values(const ChartSeries& series);
  bool stands_above(const ChartSeries& series, std::size_t index) const;
  void add_value(const ChartSeries& series, std::size_t index, double x, double half, const std::string& text);
  void add_names();

  const LineChart& chart_;
  DisplayUnit unit_;
  Axis y_ = Axis::linear(0, 1, 1);
  double left_ = kLeft;
  double right_ = 0;
  double bottom_ = 0;
  std::string out_;
};

Drawing::Drawing(const LineChart& chart) : chart_(chart) {
  double least = INFINITY;
  double most = -INFINITY;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      least = std::min({least, point.value, point.low});
      most = std::max({most, point.value, point.high});
    }
  }
  unit_ = display_unit(chart.unit, most);
  if (chart.span >= 1) {
    least = std::min(least, 0.0);
    most = std::max(most, 0.0);
  } else {
    const double around = chart.span * std::max(std::fabs(least), std::fabs(most));
    const double missing = std::max(around - (most - least), 0.0) / 2;
    least -= missing;
    most += missing;
  }
  y_ = Axis::linear(least / unit_.divisor, most / unit_.divisor, 4);
  double widest = 0;
  for (const double tick : y_.ticks()) widest = std::max(widest, width_of(y_.tick_text(tick)));
  left_ = std::max(kLeft, widest + 16);
  right_ = chart.width - (chart.series.size() > 1 ? kRightWithNames : kRight);
  bottom_ = chart.height - kBottom;
}

void Drawing::add_grid() {
  out_ += fmt::format("<text class=\"axis\" x=\"0\" y=\"18\">{}</text>\n", escaped(shortened(unit_.name, 30)));
  for (const double tick : y_.ticks()) {
    const double y = y_of(tick * unit_.divisor);
    out_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"axis end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        tick == 0 ? "base" : "grid", left_, right_, y, y, left_ - 10, y + 5.5, escaped(y_.tick_text(tick)));
  }
}

void Drawing::add_x_axis() {
  std::vector<ChartTick> ticks = chart_.x_ticks;
  if (ticks.empty()) {
    for (const double tick : chart_.x.ticks()) ticks.push_back({tick, chart_.x.tick_text(tick)});
  }
  double free_from = -INFINITY;
  for (const ChartTick& tick : ticks) {
    const double x = x_of(tick.x);
    const double half = width_of(tick.text) / 2;
    const bool has_room = x - half >= free_from;
    if (has_room || ticks.size() <= kMostLargeMarks) {
      out_ += fmt::format("<line class=\"base\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", x, x,
                          bottom_, bottom_ + 5);
    }
    if (!has_room) continue;
    free_from = x + half + 8;
    out_ += fmt::format("<text class=\"axis middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, bottom_ + 23,
                        escaped(tick.text));
  }
  out_ += fmt::format("<text class=\"axis end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", right_ + 12, bottom_ + 47.0,
                      escaped(chart_.x_name));
}

void Drawing::add_trend() {
  if (!chart_.trend) return;
  const Trend& trend = *chart_.trend;
  out_ += fmt::format("<line class=\"trend\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                      x_of(trend.from_x), y_of(trend.from_value), x_of(trend.to_x), y_of(trend.to_value));
}

void Drawing::add_lines(const ChartSeries& series) {
  std::string line;
  std::size_t count = 0;
  const bool none = !has_result(series);
  for (const ChartPoint& point : series.points) {
    if (!none && !point.no_result.empty()) continue;
    line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x_of(point.x), y_of(point.value));
    ++count;
  }
  const char* many = none ? " none" : series.points.size() > kMostLargeMarks ? " many" : "";
  if (count > 1) {
    out_ += fmt::format("<polyline class=\"line {}{}\" points=\"{}\"/>\n", class_of(series.side), many, line);
  }
}

void Drawing::add_mark(const ChartPoint& point, Side side, double size) {
  const double x = x_of(point.x);
  const double y = y_of(point.value);
  std::string mark;
  if (point.high > point.low) {
    const double top = y_of(point.high);
    const double end = y_of(point.low);
    const double cap = size * 0.9;
    mark += fmt::format(
        "<path class=\"interval\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}H{1:.1f}M{4:.1f} {2:.1f}V{3:.1f}\"/>",
        x - cap, x + cap, top, end, x);
  }
  const char* form = point.no_result.empty() ? "mark" : "mark hollow";
  if (side == Side::kKazeia) {
    mark += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>", form, x, y, size);
  } else {
    mark += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", form,
                        x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  }
  const std::string group =
      fmt::format("<g class=\"point {}\"><title>{}</title>{}</g>", class_of(side), escaped(point.title), mark);
  out_ += point.target.empty() ? group : fmt::format("<a href=\"{}\">{}</a>", escaped(point.target), group);
  out_ += '\n';
}

void Drawing::add_marks(const ChartSeries& series) {
  const std::size_t count = series.points.size();
  const bool some_result = has_result(series);
  for (std::size_t i = 0; i < count; ++i) {
    const bool wanted = i == 0 || i + 1 == count || (some_result && !series.points[i].no_result.empty());
    if (count <= kMostMarks || wanted)
      add_mark(series.points[i], series.side, count <= kMostLargeMarks || wanted ? 5.5 : 1.6);
  }
}

// Of two series, the value of the higher point stands above it and that of the lower one below. Of one series, a value
// is on the side that its line does not pass.
bool Drawing::stands_above(const ChartSeries& series, std::size_t index) const {
  const ChartPoint& point = series.points[index];
  for (const ChartSeries& other : chart_.series) {
    if (&other == &series) continue;
    for (const ChartPoint& neighbour : other.points) {
      if (neighbour.x != point.x) continue;
      return neighbour.value == point.value ? &series < &other : point.value > neighbour.value;
    }
  }
  if (chart_.series.size() > 1) return &series == chart_.series.data();
  if (index == 0 || index + 1 == series.points.size()) {
    // A line that leaves steeply upwards would go through a value above.
    if (series.points.size() < 2) return true;
    const ChartPoint& next = series.points[index == 0 ? 1 : index - 1];
    const double across = std::fabs(x_of(next.x) - x_of(point.x));
    return y_of(point.value) - y_of(next.value) < across / 2 || across < kLine;
  }
  const double between = (series.points[index - 1].value + series.points[index + 1].value) / 2;
  return point.value >= between || (point.no_result.empty() && series.points.size() <= kMostLargeMarks);
}

void Drawing::add_value(const ChartSeries& series, std::size_t index, double x, double half, const std::string& text) {
  const ChartPoint& point = series.points[index];
  const bool above = stands_above(series, index);
  double top = y_of(std::max(point.value, point.high));
  double bottom = y_of(std::min(point.value, point.low));
  // Many points stand so close that a value would cover its neighbours.
  for (const ChartPoint& neighbour : series.points) {
    if (std::fabs(x_of(neighbour.x) - x) > half) continue;
    top = std::min(top, y_of(neighbour.value));
    bottom = std::max(bottom, y_of(neighbour.value));
  }
  if (above || bottom + 24 < bottom_) {
    out_ += fmt::format("<text class=\"value middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x,
                        above ? top - 11 : bottom + 24, text);
  } else {  // no room over the axis
    const double left = x_of(point.x) + 14;
    const double y = std::min(bottom + 6, bottom_ - 5);
    out_ += fmt::format(
        "<rect class=\"behind\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\"/>"
        "<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        left - 2, y - 13, 2 * half - 4, left, y, text);
  }
}

// The most telling first: the last, the first, the least and the greatest, then as many as there is room for.
void Drawing::add_values(const ChartSeries& series) {
  const std::vector<ChartPoint>& points = series.points;
  if (points.empty()) return;
  const auto by_value = [](const ChartPoint& a, const ChartPoint& b) { return a.value < b.value; };
  const auto [least, greatest] = std::minmax_element(points.begin(), points.end(), by_value);
  std::vector<std::size_t> order{points.size() - 1, 0, static_cast<std::size_t>(least - points.begin()),
                                 static_cast<std::size_t>(greatest - points.begin())};
  if (points.size() <= kMostLargeMarks) {
    for (std::size_t i = 0; i < points.size(); ++i) order.push_back(i);
  }
  std::vector<std::pair<double, double>> taken;
  for (const std::size_t i : order) {
    const ChartPoint& point = points[i];
    const std::string text = label_text(point.value / unit_.divisor);
    const double half = width_of(text) / 2 + 3;
    const double x = std::clamp(x_of(point.x), left_ + half - 6, chart_.width - half);
    const bool overlaps = std::any_of(taken.begin(), taken.end(), [&](const auto& other) {
      return x - half < other.second && other.first < x + half;
    });
    if (overlaps) continue;
    taken.emplace_back(x - half, x + half);
    add_value(series, i, x, half, text);
  }
}

void Drawing::add_names() {
  if (chart_.series.size() < 2) return;
  std::vector<std::pair<double, const ChartSeries*>> names;
  for (const ChartSeries& series : chart_.series) {
    if (!series.points.empty()) names.emplace_back(y_of(series.points.back().value) + 5.5, &series);
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double free_from = 0;
  for (const auto& [wanted, series] : names) {
    const double y = std::max(wanted, free_from);
    free_from = y + kLine;
    out_ += fmt::format("<text class=\"name {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", class_of(series->side),
                        right_ + kNameGap, y, escaped(shortened(series->name, kLongestName)));
  }
}

std::string Drawing::text() {
  out_ = fmt::format(
      "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" aria-label=\"{}\">\n",
      chart_.width, chart_.height, escaped(chart_.title));
  add_grid();
  add_x_axis();
  for (const ChartSeries& series : chart_.series) add_lines(series);
  // Ours last, so that it is on top.
  for (auto series = chart_.series.rbegin(); series != chart_.series.rend(); ++series) add_marks(*series);
  add_trend();
  for (const ChartSeries& series : chart_.series) add_values(series);
  add_names();
  return out_ + "</svg></div>\n";
}

}  // namespace

std::string svg(const LineChart& chart) {
  const bool empty = std::all_of(chart.series.begin(), chart.series.end(),
                                 [](const ChartSeries& series) { return series.points.empty(); });
  return empty ? std::string() : Drawing(chart).text();
}

std::string hollow_note(const LineChart& chart) {
  std::string note;
  std::size_t count = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (point.no_result.empty() || ++count > kMostReasons) continue;
      const auto tick = std::find_if(chart.x_ticks.begin(), chart.x_ticks.end(),
                                     [&](const ChartTick& candidate) { return candidate.x == point.x; });
      const std::string where = tick == chart.x_ticks.end() ? number_text(point.x) : tick->text;
      note += fmt::format("{}{}{}: {}", note.empty() ? "" : "; ", chart.series.size() > 1 ? series.name + " at " : "",
                          where, point.no_result);
    }
  }
  if (note.empty()) return note;
  if (count > kMostReasons) note += fmt::format("; {} more", count - kMostReasons);
  return "Hollow, no result: " + escaped(note) + ".";
}

}  // namespace kazeia::bench::report
