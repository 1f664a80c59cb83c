#include "bench/report/speed_section.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/comparison.h"
#include "bench/figures.h"
#include "bench/report/bars.h"
#include "bench/report/line_chart.h"
#include "bench/report/markup.h"
#include "bench/report/ratios.h"
#include "bench/report/tables.h"
#include "bench/statistics.h"

namespace kazeia::bench::report {
namespace {

// Records of a configuration that stand beside each other; `baseline` may be the same or null.
struct Pair {
  const Record* ours = nullptr;
  const Record* baseline = nullptr;
};

// Milliseconds to read a prompt of `tokens` at a speed.
Figure reading_time(const Figure& speed, double tokens) {
  const auto ms = [&](double rate) { return rate > 0 ? 1000 * tokens / rate : 0; };
  Figure time = speed;
  time.unit = "ms";
  time.median = ms(speed.median);
  time.low = ms(speed.high);
  time.high = ms(speed.low);
  return time;
}

enum class Quantity { kSpeed, kTime };

ChartSeries series_of(const Record& record, const std::string& prefix, Side side, Quantity quantity) {
  ChartSeries series{.name = side == Side::kKazeia ? "kazeia" : "upstream", .side = side, .points = {}};
  for (const Figure& figure : record.figures) {
    const double length = length_in(figure.name, prefix);
    if (length < 0 || (quantity == Quantity::kTime && !(figure.low > 0))) continue;
    const Figure shown_figure = quantity == Quantity::kTime ? reading_time(figure, length) : figure;
    series.points.push_back({.x = length,
                             .value = shown_figure.median,
                             .low = shown_figure.low,
                             .high = shown_figure.high,
                             .no_result = no_result_reason(record, figure),
                             .title = figure_title(record, shown_figure),
                             .target = record_target(record)});
  }
  std::sort(series.points.begin(), series.points.end(),
            [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return series;
}

// One length is no curve.
std::string in_words(const LineChart& chart) {
  std::string html;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      Figure figure{.name = {}, .unit = chart.unit, .samples = {}};
      figure.median = point.value;
      figure.low = point.low;
      figure.high = point.high;
      html += fmt::format(
          "<p class=\"single\" title=\"{}\"><b class=\"{}\">{}{}</b> {} with {:.0f} tokens, 95 %: {}{}</p>\n",
          escaped(point.title), series.side == Side::kKazeia ? "kazeia" : "upstream",
          point.no_result.empty() ? "" : "○ ", escaped(quantity_text(point.value, chart.unit)), escaped(series.name),
          point.x, escaped(interval_text(figure)),
          point.no_result.empty() ? "" : "; no result: " + escaped(point.no_result));
    }
  }
  return html;
}

// `note` is HTML, behind what is said of hollow points.
std::string length_card(const Pair& pair, const std::string& prefix, Quantity quantity, const std::string& title,
                        const std::string& x_name, const std::string& note = "") {
  LineChart chart{.title = title, .unit = quantity == Quantity::kTime ? "ms" : "tok/s", .x_name = x_name, .series = {}};
  chart.series.push_back(series_of(*pair.ours, prefix, Side::kKazeia, quantity));
  if (pair.baseline != nullptr) {
    ChartSeries theirs = series_of(*pair.baseline, "upstream_" + prefix, Side::kUpstream, quantity);
    if (!theirs.points.empty()) chart.series.push_back(std::move(theirs));
  }
  std::vector<double> lengths;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) lengths.push_back(point.x);
  }
  chart.x = Axis::lengths(std::move(lengths));
  if (chart.x.ticks().size() == 1) return card(title, in_words(chart), note);
  const std::string hollow = hollow_note(chart);
  return card(title, svg(chart), hollow + (hollow.empty() || note.empty() ? "" : "<br>") + note);
}

// What a chat felt, which has no place on an axis of lengths.
std::string first_token_note(const Record& record) {
  std::string note = "Computed from the speed of reading.";
  const auto add = [&](const char* name, const std::string& what) {
    const Figure* figure = record.figure(name);
    if (figure == nullptr) return;
    const std::string reason = no_result_reason(record, *figure);
    note += fmt::format(" {}: <b>{}</b> ({}){}.", what, escaped(quantity_text(figure->median, figure->unit)),
                        escaped(interval_text(*figure)), reason.empty() ? "" : ", no result: " + escaped(reason));
  };
  add("ttft_ms", "Measured in a chat, a short question");
  const std::string turn = setting(record, "turns");  // "turn:700:64"
  const std::string words = turn.starts_with("turn:") ? turn.substr(5, turn.find(':', 5) - 5) : "";
  add("turn_ttft_ms",
      "A message" + (words.empty() ? "" : " of " + escaped(shortened(words, 8)) + " tokens") + " in a conversation");
  return note;
}

// The parts of a plan if the record has them; otherwise the weights by type, and the rest of what was measured.
std::vector<SizePart> parts_of(const Record& record, double whole) {
  std::vector<SizePart> parts;
  constexpr std::string_view kBytes = "_bytes";
  double known = 0;
  for (const Figure& figure : record.figures) {
    const std::string_view name = figure.name;
    if (!name.starts_with(kPlanPrefix) || !name.ends_with(kBytes) || !(figure.median > 0)) continue;
    if (name.size() <= kPlanPrefix.size() + kBytes.size()) continue;
    parts.push_back({std::string(name.substr(kPlanPrefix.size(), name.size() - kPlanPrefix.size() - kBytes.size())),
                     figure.median});
  }
  if (!parts.empty()) return parts;
  for (const auto& [type, bytes] : record.model.tensor_bytes) {
    if (bytes == 0) continue;
    parts.push_back({"weights " + type, static_cast<double>(bytes)});
    known += parts.back().bytes;
  }
  std::stable_sort(parts.begin(), parts.end(), [](const SizePart& a, const SizePart& b) { return a.bytes > b.bytes; });
  if (parts.empty() || known >= whole) return {};
  parts.push_back({"all else", whole - known});
  return parts;
}

std::string memory_bars(const Pair& pair, std::string& note) {
  std::vector<SizeRow> rows;
  const auto add = [&](const Record& record, const std::string& figure_name, const std::string& name, bool upstream) {
    const Figure* figure = record.figure(figure_name);
    if (figure == nullptr || !(figure->median > 0)) return;
    rows.push_back({.name = name,
                    .bytes = figure->median,
                    .upstream = upstream,
                    .result = no_result_reason(record, *figure).empty(),
                    .title = figure_title(record, *figure)});
  };
  const Record& ours = *pair.ours;
  add(ours, "peak_rss_bytes", "kazeia, peak", false);
  const bool planned = std::any_of(ours.figures.begin(), ours.figures.end(),
                                   [](const Figure& figure) { return figure.name.starts_with(kPlanPrefix); });
  if (!rows.empty() && !planned) rows[0].parts = parts_of(ours, rows[0].bytes);
  add(ours, "turn_peak_rss_bytes", "kazeia, peak after a turn of a chat", false);
  if (pair.baseline != nullptr) add(*pair.baseline, "upstream_peak_rss_bytes", "upstream, peak", true);
  if (planned) {
    SizeRow plan{.name = "the plan before loading", .title = "the plan before loading"};
    plan.parts = parts_of(ours, 0);
    for (const SizePart& part : plan.parts) plan.bytes += part.bytes;
    if (plan.bytes > 0) rows.insert(rows.begin(), std::move(plan));
  } else if (!rows.empty() && !rows[0].parts.empty()) {
    note = "Weights are as large as in the file; all else is the KV cache, buffers and the program.";
  }
  return size_bars(rows);
}

// Records that are newer than the ones shown.
std::string newer_note(const Records& configuration, const Record& record) {
  constexpr std::size_t kMostNamed = 3;
  std::string note;
  std::size_t count = 0;
  for (auto newer = configuration.rbegin(); newer != configuration.rend() && *newer != &record; ++newer) {
    if (is_accepted(**newer) || ++count > kMostNamed) continue;
    note += fmt::format("<p class=\"note\">Newer, but not shown as a result: {}.</p>\n", record_line(**newer));
  }
  if (count > kMostNamed) note += fmt::format("<p class=\"note\">And {} more.</p>\n", count - kMostNamed);
  return note;
}

std::string details(const std::string& summary, const std::string& content) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", summary, content);
}

}  // namespace

std::string speed_section(const Records& configuration) {
  const Pair pair{shown(configuration), shown(of_kind(configuration, "baseline"))};
  const Record& ours = *pair.ours;
  const bool other = pair.baseline != nullptr && pair.baseline != pair.ours;
  std::string html =
      fmt::format("<h4>{}</h4>\n<p class=\"note\">{}</p>\n<p class=\"note\">Shown: {}.{}</p>\n",
                  escaped(main_settings(ours)), escaped(other_settings(ours)), record_line(ours),
                  other ? fmt::format(" Upstream and the ratios: {}.", record_line(*pair.baseline)) : "");
  html += newer_note(configuration, ours);
  if (!is_accepted(ours)) {
    html += fmt::format("<p class=\"warning\">Nothing here is a result: {}.</p>\n", escaped(state_text(ours)));
  }
  std::string memory_note;
  const std::string memory = memory_bars(pair, memory_note);
  html += "<div class=\"cards\">\n";
  const char* prompt = "tokens of prompt, log scale";
  html +=
      length_card(pair, "decode_", Quantity::kSpeed, "Decode, by depth", "tokens already in the context, log scale");
  html += length_card(pair, "prefill_", Quantity::kSpeed, "Prefill, by prompt length", prompt);
  html += length_card(pair, "prefill_", Quantity::kTime, "Time to the first token, by prompt length", prompt,
                      first_token_note(ours));
  html += card("Memory", memory, memory_note);
  if (pair.baseline != nullptr) {
    html +=
        card("Kazeia / upstream, measured alternately", ratio_plots(*pair.baseline),
             fmt::format("Median and interval of the pairs of one run, {}. A difference is claimed if the interval is "
                         "beyond 1 by more than {:.0f} %.",
                         record_link(*pair.baseline), kLeastDifference * 100),
             /*wide=*/true);
  }
  html += "</div>\n";
  html += details("All figures of " + escaped(ours.id), figures_table(ours));
  if (other) html += details("All figures of " + escaped(pair.baseline->id), figures_table(*pair.baseline));
  return html;
}

}  // namespace kazeia::bench::report
