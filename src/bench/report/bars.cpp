#include "bench/report/bars.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bench/report/axis.h"
#include "bench/report/markup.h"

namespace kazeia::bench::report {
namespace {

constexpr int kShades = 6;  // of parts, in the style sheet

double percent(double share) {
  return 100 * share;
}

std::string ratio_text(double ratio) {
  return ratio < 1000 ? fmt::format("{:.3f}", ratio) : number_text(ratio);
}

std::string ratio_row(const RatioRow& row, const Axis& axis) {
  const double one = percent(axis.share(1));
  const char* mood = row.better ? "kazeia" : row.worse ? "upstream" : "even";
  std::string plot = fmt::format("<line class=\"one\" x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"40\"/>", one);
  if (row.median > 0) {
    plot += fmt::format(
        "<g class=\"point {}\"><title>{}</title><line class=\"interval\" x1=\"{:.2f}%\" x2=\"{:.2f}%\" y1=\"20\" "
        "y2=\"20\"/><circle class=\"{}\" cx=\"{:.2f}%\" cy=\"20\" r=\"6\"/></g>",
        mood, escaped(row.title), percent(axis.share(row.low)), percent(axis.share(row.high)),
        row.result ? "mark" : "mark hollow", percent(axis.share(row.median)));
  }
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td class=\"plot\"><svg>{}</svg></td><td class=\"n\">{}</td>"
      "<td class=\"n\">{} to {}</td><td class=\"{}\">{}</td></tr>\n",
      escaped(row.name), plot, ratio_text(row.median), ratio_text(row.low), ratio_text(row.high),
      row.result ? mood : "noresult", escaped(row.verdict));
}

std::string ratio_axis(const Axis& axis) {
  std::string ticks;
  constexpr double kRoom = 0.2;  // between ticks, where the plot is narrow
  const double one = axis.share(1);
  double free_from = -1;
  for (const double tick : axis.ticks()) {
    const double at = axis.share(tick);
    if (tick != 1 && (at < free_from || std::fabs(at - one) < kRoom)) continue;
    free_from = at + kRoom;
    const char* anchor = at < 0.05 ? "start" : at > 0.95 ? "end" : "middle";
    ticks += fmt::format("<text class=\"axis {}\" x=\"{:.2f}%\" y=\"18\">{}</text>", anchor, percent(at),
                         axis.tick_text(tick));
  }
  return fmt::format("<svg>{}</svg>", ticks);
}

std::string bar(const SizeRow& row, double most) {
  std::string pieces;
  double from = 0;
  int shade = 0;
  const auto add = [&](double bytes, const std::string& shape) {
    pieces += fmt::format("<rect class=\"{}\" x=\"{:.3f}%\" y=\"0\" width=\"{:.3f}%\" height=\"26\"/>", shape,
                          percent(from / most), percent(bytes / most));
    from += bytes;
  };
  for (const SizePart& part : row.parts) add(part.bytes, fmt::format("part s{}", shade++ % kShades));
  if (row.parts.empty()) add(row.bytes, row.upstream ? "whole upstream" : "whole kazeia");
  return fmt::format("<svg class=\"bar{}\"><g class=\"point\"><title>{}</title>{}</g></svg>",
                     row.result ? "" : " hollow", escaped(row.title), pieces);
}

std::string key_of(const SizeRow& row) {
  std::string key;
  int shade = 0;
  for (const SizePart& part : row.parts) {
    key += fmt::format(
        "<li><svg class=\"swatch\"><rect class=\"part s{}\" width=\"14\" height=\"14\"/></svg>{} <b>{}</b></li>",
        shade++ % kShades, escaped(part.name), quantity_text(part.bytes, "bytes"));
  }
  return key.empty() ? key : "<ul class=\"key\">" + key + "</ul>";
}

}  // namespace

std::string ratio_plot(const std::vector<RatioRow>& rows, const std::string& name_title,
                       const std::string& ratio_title) {
  if (rows.empty()) return {};
  std::vector<double> values;
  for (const RatioRow& row : rows) values.insert(values.end(), {row.median, row.low, row.high});
  const Axis axis = Axis::ratios(values);
  std::string table = fmt::format(
      "<div class=\"scroll\"><table class=\"chart ratios\"><thead><tr><th>{}</th><th class=\"plot\">{}</th>"
      "<th class=\"n\">{}</th><th class=\"n\">95 % interval</th><th>verdict</th></tr></thead><tbody>\n",
      escaped(name_title), ratio_axis(axis), escaped(ratio_title));
  for (const RatioRow& row : rows) table += ratio_row(row, axis);
  return table + "</tbody></table></div>\n";
}

std::string size_bars(const std::vector<SizeRow>& rows) {
  double most = 0;
  for (const SizeRow& row : rows) most = std::max(most, row.bytes);
  if (!(most > 0)) return {};
  std::string list = "<div class=\"chart sizes\">\n";
  for (const SizeRow& row : rows) {
    list += fmt::format("<div><p class=\"size\"><span>{}</span> <b>{}</b>{}</p>{}{}</div>\n", escaped(row.name),
                        quantity_text(row.bytes, "bytes"),
                        row.result ? "" : " <span class=\"noresult\">no result</span>", bar(row, most), key_of(row));
  }
  return list + "</div>\n";
}

}  // namespace kazeia::bench::report
