#include "bench_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace kazeia::cli {
namespace {

using bench::Figure;
using bench::Record;
using Row = std::vector<std::string>;

std::string number(double value) {
  return std::fabs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string quantity(double value, const std::string& unit) {
  if (unit == "bytes" && value >= 0) return format_bytes(static_cast<std::uint64_t>(value));
  if (unit == "ratio") return fmt::format("{:.2f}x", value);
  return number(value) + " " + unit;
}

// The unit is beside it already; only bytes change theirs with the size.
std::string interval(const Figure& figure) {
  if (figure.unit != "bytes") return fmt::format("{} to {}", number(figure.low), number(figure.high));
  return fmt::format("{} to {}", quantity(figure.low, figure.unit), quantity(figure.high, figure.unit));
}

// "-1.2 MiB/h"
std::string slope_quantity(double value, const std::string& unit) {
  if (unit != "bytes/h") return number(value) + " " + unit;
  return fmt::format("{}{}/h", value < 0 ? "-" : "", format_bytes(static_cast<std::uint64_t>(std::fabs(value))));
}

// The first column to the left, the others to the right.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string setting(const Record& record, const std::string& name) {
  const auto found = record.settings.find(name);
  return found == record.settings.end() ? "" : found->second;
}

std::string head(const Record& record) {
  std::uint64_t bytes = 0;
  for (const auto& [type, size] : record.model.tensor_bytes) bytes += size;
  const std::string threads = setting(record, "threads");
  std::string text = fmt::format("{}: {}, {}; {} thread{}, context {}, KV cache {}\n", record.model.file,
                                 record.model.architecture, format_bytes(bytes), threads, threads == "1" ? "" : "s",
                                 setting(record, "context"), setting(record, "kv"));
  const std::string route = setting(record, "route");
  if (!route.empty()) text.insert(text.size() - 1, ", route " + route);
  const std::string depth = setting(record, "depth");
  if (!depth.empty()) text.insert(text.size() - 1, ", depths over 1024: " + depth);
  return text + fmt::format("{}; {}{}\n\n", record.machine.name,
                            record.commit.empty() ? "no commit" : "commit " + record.commit.substr(0, 10),
                            record.dirty ? " with changes" : "");
}

std::string figures(const Record& record) {
  std::vector<Row> rows{{"", "median", "95 % interval", "variation", "repetitions"}};
  for (const Figure& figure : record.figures) {
    rows.push_back({figure.name, quantity(figure.median, figure.unit), interval(figure),
                    fmt::format("{:.1f} %", figure.variation * 100), std::to_string(figure.samples.size())});
  }
  return table(rows);
}

std::string sides(const Record& record) {
  std::vector<Row> rows{{"", "upstream", "kazeia", "ratio", "95 % interval", "variation"}};
  for (const Figure& ours : record.figures) {
    if (ours.name.starts_with("upstream_") || ours.name.starts_with("ratio_")) continue;
    const Figure* theirs = record.figure("upstream_" + ours.name);
    const Figure* ratio = record.figure("ratio_" + ours.name);
    rows.push_back({ours.name, theirs == nullptr ? "-" : quantity(theirs->median, theirs->unit),
                    quantity(ours.median, ours.unit), ratio == nullptr ? "-" : quantity(ratio->median, "ratio"),
                    ratio == nullptr ? interval(ours) : interval(*ratio),
                    fmt::format("{:.1f} %", (ratio == nullptr ? ours : *ratio).variation * 100)});
  }
  return table(rows);
}

std::string routes(const Record& record) {
  constexpr std::array<std::string_view, 3> kRoutes{"cpu", "npu-prefill", "npu-only"};
  // The CPU's route is always there, and every route measures the same.
  Row titles{"route", "status"};
  for (const Figure& figure : record.figures) {
    if (figure.name.starts_with("cpu_")) titles.push_back(figure.name.substr(4));
  }
  std::vector<Row> rows{titles};
  for (const std::string_view route : kRoutes) {
    const std::string status = setting(record, fmt::format("route_{}", route));
    Row row{std::string(route), status == "used" ? "measured" : status};
    for (std::size_t i = 2; i < titles.size(); ++i) {
      const Figure* figure = record.figure(fmt::format("{}_{}", route, titles[i]));
      row.push_back(figure == nullptr ? "-" : quantity(figure->median, figure->unit));
    }
    rows.push_back(std::move(row));
  }
  return table(rows);
}

std::string soak(const Record& record) {
  std::vector<Row> rows{{"", "first", "median", "last", "lowest", "highest"}};
  std::string slopes;
  for (const Figure& figure : record.figures) {
    if (figure.name.find("_slope") != std::string::npos) {
      slopes += fmt::format("{}: {}, 95 %: {} to {}\n", figure.name, slope_quantity(figure.median, figure.unit),
                            slope_quantity(figure.low, figure.unit), slope_quantity(figure.high, figure.unit));
      continue;
    }
    const auto [low, high] = std::minmax_element(figure.samples.begin(), figure.samples.end());
    Row row{figure.name};
    for (const double value : {figure.samples.front(), figure.median, figure.samples.back(), *low, *high}) {
      row.push_back(quantity(value, figure.unit));
    }
    rows.push_back(std::move(row));
  }
  return table(rows) + (slopes.empty() ? "" : "\n" + slopes);
}

}  // namespace

std::string bench_text(const Record& record) {
  std::string text = head(record);
  if (record.kind == "baseline") {
    text += sides(record);
  } else if (record.kind == "routes") {
    text += routes(record);
  } else if (record.kind == "soak") {
    text += soak(record);
  } else {
    text += figures(record);
  }
  if (!record.note.empty()) text += "\n" + record.note + "\n";
  if (!record.disturbance.empty()) text += "\ndisturbed: " + record.disturbance + "\n";
  return text;
}

std::string bench_json(const Record& record) {
  return nlohmann::ordered_json::parse(bench::to_json(record))
             .dump(2, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace kazeia::cli
