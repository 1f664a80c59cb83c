#include "bench/comparison.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "bench/figures.h"

namespace kazeia::bench {
namespace {

constexpr std::string_view kRatioUnit = "ratio";

bool worse(const FigureComparison& figure, Difference difference) {
  return difference == (figure.higher_is_better ? Difference::kLess : Difference::kMore);
}

// Empty if ratios of such figures mean something.
std::string why_no_ratio(const Figure& figure) {
  if (figure.name.starts_with(kPlanPrefix)) return "it was foretold, not measured";
  if (is_slope(figure)) return "a slope is judged by its own interval";
  return {};
}

std::string of_one(const Record& record, const Figure& figure) {
  if (!record.disturbance.empty()) return fmt::format("{} was disturbed: {}", record.id, record.disturbance);
  const std::string why = why_no_result(figure);
  return why.empty() ? why : fmt::format("in {} it {}", record.id, why);
}

std::string why_not_compared(const Record& a, const Figure& before, const Record& b, const Figure& after) {
  if (std::string why = why_no_ratio(before); !why.empty()) return why;
  if (before.unit != after.unit) return fmt::format("it is in {} and in {}", before.unit, after.unit);
  if (before.higher_is_better != after.higher_is_better) return "the two disagree about which direction is good";
  std::string why = of_one(a, before);
  return why.empty() ? of_one(b, after) : why;
}

FigureComparison compare_figure(const Record& a, const Figure& before, const Record& b, const Figure& after) {
  FigureComparison figure{.name = before.name,
                          .unit = after.unit,
                          .higher_is_better = after.higher_is_better,
                          .before = before.median,
                          .after = after.median};
  figure.reason = why_not_compared(a, before, b, after);
  if (!figure.reason.empty()) return figure;
  const Ratio ratio = ratio_of_medians(after.samples, before.samples);
  if (ratio.median <= 0) {
    figure.reason = "it has samples that are not above zero";
    return figure;
  }
  figure.ratio = ratio;
  const Difference found = difference(ratio);
  figure.verdict = found == Difference::kNone ? Verdict::kNoDifference
                   : worse(figure, found)     ? Verdict::kSlower
                                              : Verdict::kFaster;
  return figure;
}

// "threads 2 -> 4, kv f16 -> q8_0"
std::string settings_change(const Record& a, const Record& b) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [name, value] : a.settings) both[name].first = value;
  for (const auto& [name, value] : b.settings) both[name].second = value;
  std::string text;
  for (const auto& [name, values] : both) {
    if (values.first == values.second) continue;
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, values.first.empty() ? "none" : values.first,
                        values.second.empty() ? "none" : values.second);
  }
  return text;
}

void remark_differences(const Record& a, const Record& b, std::vector<std::string>& remarks) {
  const auto remark = [&](const char* what, const std::string& before, const std::string& after) {
    if (before != after) remarks.push_back(fmt::format("{} differs: {} -> {}", what, before, after));
  };
  remark("the machine", a.machine.name, b.machine.name);
  remark("the kind", a.kind, b.kind);
  if (a.model.hash != b.model.hash)
    remark("the model", a.model.file + " " + a.model.hash, b.model.file + " " + b.model.hash);
  const std::string settings = settings_change(a, b);
  if (!settings.empty()) remarks.push_back("the settings differ: " + settings);
  for (const Record* record : {&a, &b}) {
    if (record->dirty) remarks.push_back(record->id + " was measured with changes that are in no commit");
  }
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool is_slope(const Figure& figure) {
  return figure.unit.ends_with("/h");
}

std::string why_no_result(const Figure& figure) {
  if (figure.samples.size() < kFewestSamples) {
    return fmt::format("has {} sample{}, fewer than {}", figure.samples.size(), figure.samples.size() == 1 ? "" : "s",
                       kFewestSamples);
  }
  if (!is_slope(figure) && !(figure.variation <= kMostVariation)) {
    return fmt::format("varied by {:.1f} %, more than {:.0f} %", figure.variation * 100, kMostVariation * 100);
  }
  return {};
}

bool is_accepted(const Record& record) {
  const auto is_result = [](const Figure& figure) {
    return why_no_ratio(figure).empty() && why_no_result(figure).empty();
  };
  return record.disturbance.empty() && std::any_of(record.figures.begin(), record.figures.end(), is_result);
}

bool has_steady_speed(const Record& record, double most_variation) {
  return std::any_of(record.figures.begin(), record.figures.end(), [&](const Figure& figure) {
    return (figure.unit == "tok/s" || figure.unit == "ms") && !figure.name.starts_with(kUpstreamPrefix) &&
           figure.samples.size() >= kFewestSamples && figure.variation <= most_variation;
  });
}

bool can_be_reference(const Record& record) {
  return is_accepted(record) && !record.dirty;
}

std::string_view verdict_text(const FigureComparison& figure) {
  const std::string& unit = figure.unit;
  const bool speed =
      unit == kRatioUnit || unit == "s" || unit == "ms" || unit == "us" || unit == "ns" || unit.ends_with("/s");
  switch (figure.verdict) {
    case Verdict::kFaster:
      return speed ? "faster" : "better";
    case Verdict::kSlower:
      return speed ? "slower" : "worse";
    case Verdict::kNoDifference:
      return "no difference";
    case Verdict::kNoResult:
      return "no result";
  }
  return "no result";
}

bool Comparison::has_result() const {
  return std::any_of(figures.begin(), figures.end(),
                     [](const FigureComparison& figure) { return figure.verdict != Verdict::kNoResult; });
}

Result<Comparison> compare(const Record& a, const Record& b) {
  const bool same_machine = a.machine.id == b.machine.id;
  Comparison comparison{.before = a.id, .after = b.id};
  remark_differences(a, b, comparison.remarks);
  std::vector<std::string> refused;
  std::vector<std::string> alone;
  for (const Figure& before : a.figures) {
    const Figure* after = b.figure(before.name);
    if (after == nullptr) {
      alone.push_back(before.name);
    } else if (!same_machine && (before.unit != kRatioUnit || after->unit != kRatioUnit)) {
      refused.push_back(before.name);
    } else {
      comparison.figures.push_back(compare_figure(a, before, b, *after));
    }
  }
  for (const Figure& after : b.figures) {
    if (a.figure(after.name) == nullptr) alone.push_back(after.name);
  }
  if (!refused.empty()) {
    const std::string sentence = fmt::format(
        "{} and {} are of different machines, of which only ratios are compared, not {}", a.id, b.id, joined(refused));
    if (comparison.figures.empty()) {
      return Error(ErrorCode::kUnsupported, sentence, "Compare records of one machine");
    }
    comparison.remarks.push_back(sentence);
  }
  if (comparison.figures.empty()) {
    return Error(ErrorCode::kUsage, fmt::format("{} and {} have no figure in common", a.id, b.id),
                 "Compare records of the same kind");
  }
  if (!alone.empty()) comparison.remarks.push_back("only one of the two has " + joined(alone));
  return comparison;
}

Result<Comparison> check(const Record& reference, const Record& now, double tolerance) {
  KAZEIA_ASSIGN(Comparison comparison, compare(reference, now));
  if (!comparison.has_result()) {
    std::vector<std::string> reasons;
    for (const FigureComparison& figure : comparison.figures) {
      reasons.push_back(fmt::format("{}: {}", figure.name, figure.reason));
    }
    return Error(
        ErrorCode::kEngine,
        fmt::format("nothing of {} could be compared with {} ({})", now.id, reference.id, fmt::join(reasons, "; ")),
        "Measure again on a quiet machine");
  }
  for (FigureComparison& figure : comparison.figures) {
    if (figure.verdict == Verdict::kNoResult) continue;
    const double median = figure.ratio.median;
    const bool beyond_tolerance = figure.higher_is_better ? median < 1 - tolerance : median > 1 + tolerance;
    figure.regressed = beyond_tolerance && worse(figure, difference(figure.ratio, 0));
    if (figure.regressed) figure.verdict = Verdict::kSlower;
  }
  return comparison;
}

std::optional<Record> reference_of(std::span<const Record> records, const Record& now) {
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->id != now.id && record->time <= now.time && record->machine.id == now.machine.id &&
        record->model.hash == now.model.hash && record->kind == now.kind && record->settings == now.settings &&
        can_be_reference(*record)) {
      return *record;
    }
  }
  return std::nullopt;
}

}  // namespace kazeia::bench
