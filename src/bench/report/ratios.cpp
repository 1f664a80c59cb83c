#include "bench/report/ratios.h"

#include <string_view>
#include <vector>

#include "bench/comparison.h"
#include "bench/report/bars.h"
#include "bench/report/tables.h"
#include "bench/statistics.h"

namespace kazeia::bench::report {
namespace {

RatioRow ratio_row(const Record& record, const Figure& figure, const std::string& name) {
  const Figure* ours = record.figure(name);
  FigureComparison comparison{.name = name, .unit = ours == nullptr ? figure.unit : ours->unit};
  RatioRow row{.name = name, .median = figure.median, .low = figure.low, .high = figure.high, .verdict = {}};
  row.result = no_result_reason(record, figure).empty();
  const Difference found = difference({figure.median, figure.low, figure.high});
  row.better = row.result && found == (figure.higher_is_better ? Difference::kMore : Difference::kLess);
  row.worse = row.result && found == (figure.higher_is_better ? Difference::kLess : Difference::kMore);
  comparison.verdict = !row.result  ? Verdict::kNoResult
                       : row.better ? Verdict::kFaster
                       : row.worse  ? Verdict::kSlower
                                    : Verdict::kNoDifference;
  row.verdict = verdict_text(comparison);
  row.title = figure_title(record, figure);
  return row;
}

}  // namespace

std::string ratio_plots(const Record& record) {
  constexpr std::string_view kRatio = "ratio_";
  std::vector<RatioRow> speeds;
  std::vector<RatioRow> costs;
  for (const Figure& figure : record.figures) {
    if (!figure.name.starts_with(kRatio)) continue;
    (figure.higher_is_better ? speeds : costs).push_back(ratio_row(record, figure, figure.name.substr(kRatio.size())));
  }
  return ratio_plot(speeds, "more is better", "ratio") + ratio_plot(costs, "less is better", "ratio");
}

}  // namespace kazeia::bench::report
