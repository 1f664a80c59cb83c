#include "bench/report/time_sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/figures.h"
#include "bench/report/line_chart.h"
#include "bench/report/markup.h"
#include "bench/report/tables.h"
#include "bench/statistics.h"

namespace kazeia::bench::report {
namespace {

constexpr double kMinute = 60;
// Shares of a value: narrower, and noise would look like an event.
constexpr double kSoakSpan = 0.3;
constexpr double kMemorySpan = 0.1;
constexpr double kHistorySpan = 0.1;
constexpr const char* kNotFromZero = "The axis does not begin at 0.";
// The slopes of a soak leave out what came before: caches fill, the machine warms up.
constexpr std::size_t kSettlingShare = 10;

// Minutes at the end of each interval, if the record has a moment for each.
std::vector<double> minutes_of(const Record& record, std::size_t count) {
  const std::vector<MachineMoment>& moments = record.moments;
  if (moments.size() != count || count < 2) return {};
  const double interval = moments[1].seconds - moments[0].seconds;
  std::vector<double> minutes;
  minutes.reserve(count);
  for (const MachineMoment& moment : moments) {
    minutes.push_back((moment.seconds - moments[0].seconds + interval) / kMinute);
  }
  return minutes.back() > 0 ? minutes : std::vector<double>();
}

// The line of a slope goes through the middle of the points it was fitted to.
Trend trend_of(const std::vector<ChartPoint>& points, double slope_an_hour) {
  const std::size_t skipped = points.size() / kSettlingShare;
  double x = 0;
  double value = 0;
  for (std::size_t i = skipped; i < points.size(); ++i) {
    x += points[i].x;
    value += points[i].value;
  }
  const auto count = static_cast<double>(points.size() - skipped);
  x /= count;
  value /= count;
  const double slope = slope_an_hour / kMinute;
  const double from = points[skipped].x;
  const double to = points.back().x;
  return {from, value + slope * (from - x), to, value + slope * (to - x)};
}

std::string slope_text(const Figure& slope) {
  const char* verdict = slope.low > 0    ? "it rises"
                        : slope.high < 0 ? "it falls"
                                         : "no trend that could be told from noise";
  const bool bytes = slope.unit.starts_with("bytes");
  return fmt::format("Slope: <b>{}</b>, 95 %: {}: {}.", escaped(quantity_text(slope.median, slope.unit)),
                     escaped(interval_text(slope) + (bytes ? "" : fmt::format(" {}", slope.unit))), verdict);
}

std::string soak_card(const Record& record, const std::string& name, const std::string& title, double span,
                      const std::string& slope_name) {
  const Figure* figure = record.figure(name);
  if (figure == nullptr) return {};
  const std::vector<double> minutes = minutes_of(record, figure->samples.size());
  ChartSeries series{.name = title, .points = {}};
  for (std::size_t i = 0; i < figure->samples.size(); ++i) {
    const double value = figure->samples[i];
    const double x = minutes.empty() ? static_cast<double>(i + 1) : minutes[i];
    series.points.push_back({.x = x,
                             .value = value,
                             .low = value,
                             .high = value,
                             .no_result = record.disturbance,
                             .title = fmt::format("{}: {} after {:.1f} {}", name, quantity_text(value, figure->unit), x,
                                                  minutes.empty() ? "intervals" : "min")});
  }
  LineChart chart{.title = title,
                  .unit = figure->unit,
                  .x_name = minutes.empty() ? "interval" : "minutes",
                  .x = Axis::linear(0, series.points.back().x, 6),
                  .span = span,
                  .series = {}};
  std::string note = kNotFromZero;
  const Figure* slope = record.figure(slope_name);
  if (slope != nullptr) {
    note.append(" ").append(slope_text(*slope));
    if (!minutes.empty()) chart.trend = trend_of(series.points, slope->median);
  }
  if (!record.disturbance.empty())
    note += " No result, because the record was disturbed: " + escaped(record.disturbance) + ".";
  chart.series.push_back(std::move(series));
  return card(title, svg(chart), note);
}

std::string history_chart(const Records& records, const std::string& name, const std::string& unit) {
  ChartSeries series{.name = name, .points = {}};
  std::vector<ChartTick> ticks;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = *records[i];
    ticks.push_back({static_cast<double>(i), commit_text(record)});
    const Figure* figure = record.figure(name);
    if (figure == nullptr || figure->unit != unit) continue;
    series.points.push_back({.x = static_cast<double>(i),
                             .value = figure->median,
                             .low = figure->low,
                             .high = figure->high,
                             .no_result = no_result_reason(record, *figure),
                             .title = figure_title(record, *figure),
                             .target = record_target(record)});
  }
  const double last = static_cast<double>(records.size() - 1);
  // Half a step of air at both ends, so that the first and the last commit have room for their name.
  LineChart chart{.title = name + " by commit",
                  .unit = unit,
                  .x_name = "commit",
                  .x = Axis::exact(-0.5, last + 0.5),
                  .x_ticks = std::move(ticks),
                  .span = kHistorySpan,
                  .series = {},
                  .height = 230};
  chart.series.push_back(std::move(series));
  return card(name, svg(chart), hollow_note(chart));
}

// Which figures are seen first; the others are behind one touch.
int importance(const std::string& name) {
  constexpr std::array<std::string_view, 9> kFirst{"decode_0",    "decode_4096",    "prefill_512",
                                                   "ttft_ms",     "peak_rss_bytes", "turn_ttft_ms",
                                                   "soak_decode", "soak_rss_bytes", "soak_ttft_ms"};
  const auto found = std::find(kFirst.begin(), kFirst.end(), name);
  return static_cast<int>(found - kFirst.begin());
}

std::string history_table(const Records& records, const std::vector<std::pair<std::string, std::string>>& figures) {
  std::string rows = "<thead><tr><th scope=\"col\">record</th><th scope=\"col\">commit</th>";
  for (const auto& [name, unit] : figures)
    rows += fmt::format("<th scope=\"col\">{}, {}</th>", escaped(name), escaped(unit));
  rows += "</tr></thead><tbody>\n";
  for (const Record* record : records) {
    rows += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"l id\">{}</td>", record_link(*record),
                        escaped(commit_text(*record)));
    for (const auto& [name, unit] : figures) {
      const Figure* figure = record->figure(name);
      if (figure == nullptr || figure->unit != unit) {
        rows += "<td class=\"n\">–</td>";
        continue;
      }
      const bool result = no_result_reason(*record, *figure).empty();
      rows += fmt::format("<td class=\"n{}\">{}{}</td>", result ? "" : " noresult", result ? "" : "○ ",
                          escaped(quantity_text(figure->median, unit)));
    }
    rows += "</tr>\n";
  }
  return "<div class=\"scroll\"><table>" + rows + "</tbody></table></div>\n";
}

}  // namespace

std::string soak_section(const Record& record) {
  std::string cards =
      soak_card(record, "soak_decode", "Decode during the soak", kSoakSpan, "soak_decode_slope") +
      soak_card(record, "soak_rss_bytes", "Memory in use", kMemorySpan, "soak_rss_slope_bytes_per_hour") +
      soak_card(record, "soak_ttft_ms", "First token of a turn", kSoakSpan, "soak_ttft_slope") +
      soak_card(record, "soak_temperature_c", "Temperature of the processor", kSoakSpan, "");
  return fmt::format(
      "<h4>Soak: {}</h4>\n<p class=\"note\">{}</p>\n<p class=\"note\">Shown: {}.</p>\n<div class=\"cards\">\n{}</div>\n"
      "<details><summary>All figures of {}</summary>\n{}</details>\n",
      escaped(main_settings(record)), escaped(other_settings(record)), record_line(record), cards, escaped(record.id),
      figures_table(record));
}

std::string history_section(const Records& records) {
  if (records.size() < 2) return {};
  std::vector<std::pair<std::string, std::string>> figures;  // name and unit, of the newest record
  for (const Figure& figure : records.back()->figures) {
    if (figure.name.starts_with("upstream_") || figure.name.starts_with(kPlanPrefix)) continue;
    figures.emplace_back(figure.name, figure.unit);
  }
  std::stable_sort(figures.begin(), figures.end(),
                   [](const auto& a, const auto& b) { return importance(a.first) < importance(b.first); });
  constexpr std::size_t kSeenFirst = 4;
  std::string first;
  std::string others;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    (i < kSeenFirst ? first : others) += history_chart(records, figures[i].first, figures[i].second);
  }
  std::string html = fmt::format("<h5>{}, {}</h5>\n<p class=\"note\">{}</p>\n<div class=\"cards small\">\n{}</div>\n",
                                 escaped(records.back()->kind), escaped(main_settings(*records.back())),
                                 escaped(other_settings(*records.back())), first);
  if (!others.empty()) {
    html += fmt::format(
        "<details><summary>{} more figures by commit</summary>\n<div class=\"cards small\">\n{}</div></details>\n",
        figures.size() - kSeenFirst, others);
  }
  return html + "<details><summary>The values of these charts</summary>\n" + history_table(records, figures) +
         "</details>\n";
}

}  // namespace kazeia::bench::report
