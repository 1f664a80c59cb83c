#include "ledger_report.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;
using bench::Comparison;
using bench::Figure;
using bench::FigureComparison;
using bench::Record;
using bench::Verdict;
using Row = std::vector<std::string>;

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back();
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string number(double value) {
  return std::fabs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string quantity(double value, std::string_view unit) {
  if (unit == "bytes" && value >= 0 && value < 1e18) return format_bytes(static_cast<std::uint64_t>(value));
  return fmt::format("{} {}", number(value), unit);
}

std::string commit_text(const Record& record) {
  if (record.commit.empty()) return "-";
  return record.commit.substr(0, 10) + (record.dirty ? "+" : "");
}

std::string state_text(const Record& record) {
  if (!record.disturbance.empty()) return "disturbed: " + record.disturbance;
  if (!bench::is_accepted(record)) return "no result";
  return bench::can_be_reference(record) ? "accepted" : "accepted, no reference";
}

std::string or_none(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string interval_text(const Figure& figure) {
  if (figure.unit == "bytes") return quantity(figure.low, "bytes") + " to " + quantity(figure.high, "bytes");
  return fmt::format("{} to {}", number(figure.low), number(figure.high));
}

std::string figures_text(const std::vector<Figure>& figures) {
  std::vector<Row> rows{{"figure", "median", "95 % interval", "variation", "samples", ""}};
  for (const Figure& figure : figures) {
    const std::string why = bench::why_no_result(figure);
    rows.push_back({figure.name, quantity(figure.median, figure.unit), interval_text(figure),
                    fmt::format("{:.1f} %", figure.variation * 100), std::to_string(figure.samples.size()),
                    why.empty() ? "" : "no result: it " + why});
  }
  return table(rows);
}

std::string moments_text(const std::vector<bench::MachineMoment>& moments) {
  if (moments.empty()) return "-";
  double foreign = 0;
  double hottest = 0;
  bool throttled = false;
  for (const bench::MachineMoment& moment : moments) {
    foreign = std::max(foreign, moment.foreign_cpu);
    hottest = std::max(hottest, moment.temperature_c);
    throttled = throttled || moment.throttled;
  }
  std::string text = fmt::format("{} in {:.0f} s; others used at most {:.0f} % of a core", moments.size(),
                                 moments.back().seconds, foreign * 100);
  if (hottest > 0) text += fmt::format("; at most {:.0f} °C", hottest);
  return text + (throttled ? "; throttled" : "");
}

Json to_json(const FigureComparison& figure) {
  const bool result = figure.verdict != Verdict::kNoResult;
  return {{"name", figure.name},
          {"unit", figure.unit},
          {"higher_is_better", figure.higher_is_better},
          {"before", figure.before},
          {"after", figure.after},
          {"ratio", result ? Json(figure.ratio.median) : Json(nullptr)},
          {"low", result ? Json(figure.ratio.low) : Json(nullptr)},
          {"high", result ? Json(figure.ratio.high) : Json(nullptr)},
          {"verdict", bench::verdict_text(figure)},
          {"reason", result ? Json(nullptr) : Json(figure.reason)}};
}

Json figures_json(const Comparison& comparison) {
  Json array = Json::array();
  for (const FigureComparison& figure : comparison.figures) array.push_back(to_json(figure));
  return array;
}

Json to_json(const CheckedRecord& checked, double tolerance) {
  const std::optional<Comparison>& comparison = checked.comparison;
  Json regressions = Json::array();
  if (comparison) {
    for (const FigureComparison& figure : comparison->figures) {
      if (figure.regressed) regressions.push_back(figure.name);
    }
  }
  return {{"reference", comparison ? Json(comparison->before) : Json(nullptr)},
          {"record", checked.now.id},
          {"passes", checked.failure.empty()},
          {"tolerance", tolerance},
          {"regressions", regressions},
          {"figures", comparison ? figures_json(*comparison) : Json::array()},
          {"remarks", comparison ? Json(comparison->remarks) : Json::array()}};
}

}  // namespace

std::string added_text(const Record& record) {
  std::string text = fmt::format("{} is in the ledger of the machine {}", record.id, record.machine.id);
  if (!bench::is_accepted(record)) return text + ", but not accepted as a result.";
  if (!bench::can_be_reference(record)) {
    return text + ", but no check refers to it: it was measured with changes that are in no commit.";
  }
  return text + ".";
}

std::string list_text(std::span<const Record> records) {
  std::vector<Row> rows{{"id", "time", "kind", "machine", "commit", "model", "state"}};
  for (const Record& record : records) {
    rows.push_back({record.id, record.time, record.kind, record.machine.id, commit_text(record),
                    or_none(record.model.file), state_text(record)});
  }
  return table(rows);
}

std::string list_json(std::span<const Record> records) {
  Json array = Json::array();
  for (const Record& record : records) {
    array.push_back({{"id", record.id},
                     {"time", record.time},
                     {"kind", record.kind},
                     {"machine", record.machine.id},
                     {"commit", record.commit},
                     {"dirty", record.dirty},
                     {"model", record.model.file},
                     {"model_hash", record.model.hash},
                     {"accepted", bench::is_accepted(record)},
                     {"reference", bench::can_be_reference(record)},
                     {"disturbance", record.disturbance},
                     {"note", record.note}});
  }
  return dumped(array);
}

std::string record_text(const Record& record) {
  std::vector<std::string> settings;
  for (const auto& [name, value] : record.settings) settings.push_back(fmt::format("{} {}", name, value));
  const std::vector<Row> rows{
      {"record", record.id},
      {"time", record.time},
      {"kind", record.kind},
      {"state", state_text(record)},
      {"command", fmt::format("{}", fmt::join(record.command, " "))},
      {"commit",
       fmt::format("{}{}", or_none(record.commit), record.dirty ? ", with changes that are in no commit" : "")},
      {"engine", record.engine_version},
      {"upstream", or_none(record.upstream_version)},
      {"compiler", or_none(record.compiler)},
      {"flags", or_none(record.flags)},
      {"machine", fmt::format("{}, {}, {}", record.machine.id, record.machine.name, record.machine.system)},
      {"model", record.model.file.empty()
                    ? "-"
                    : fmt::format("{}, {}, {}", record.model.file, record.model.architecture, record.model.hash)},
      {"settings", settings.empty() ? "-" : fmt::format("{}", fmt::join(settings, ", "))},
      {"moments", moments_text(record.moments)},
      {"note", or_none(record.note)}};
  return table(rows) + "\n" + figures_text(record.figures);
}

std::string comparison_text(const Comparison& comparison) {
  std::vector<Row> rows{{"figure", comparison.before, comparison.after, "ratio", "95 % interval", "verdict"}};
  for (const FigureComparison& figure : comparison.figures) {
    const bool result = figure.verdict != Verdict::kNoResult;
    rows.push_back({figure.name, quantity(figure.before, figure.unit), quantity(figure.after, figure.unit),
                    result ? fmt::format("{:.3f}", figure.ratio.median) : "-",
                    result ? fmt::format("{:.3f} to {:.3f}", figure.ratio.low, figure.ratio.high) : "-",
                    fmt::format("{}{}{}{}", bench::verdict_text(figure), result ? "" : ": ", figure.reason,
                                figure.regressed ? ", a regression" : "")});
  }
  std::string text = table(rows);
  for (const std::string& remark : comparison.remarks) text += "note: " + remark + "\n";
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  return dumped({{"before", comparison.before},
                 {"after", comparison.after},
                 {"figures", figures_json(comparison)},
                 {"remarks", comparison.remarks}});
}

std::string check_text(std::span<const CheckedRecord> checked) {
  std::string text;
  for (const CheckedRecord& record : checked) {
    if (!text.empty()) text += "\n";
    if (record.comparison) {
      text += comparison_text(*record.comparison);
    } else {
      text += checked.size() > 1 ? record.now.id + ": " : "";
      text += (record.failure.empty() ? "no accepted record to compare with" : record.failure) + "\n";
    }
  }
  return text;
}

std::string check_json(std::span<const CheckedRecord> checked, double tolerance) {
  Json array = Json::array();
  for (const CheckedRecord& record : checked) array.push_back(to_json(record, tolerance));
  return dumped(array.size() == 1 ? array[0] : array);
}

}  // namespace kazeia::cli
