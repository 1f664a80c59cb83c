#include "bench/record_rules.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/statistics.h"

namespace kazeia::bench {
namespace {

constexpr std::array<std::string_view, 6> kKinds{"bench", "baseline", "routes", "soak", "turns", "tune"};
constexpr std::size_t kLongestName = 100;
// Sums are rounded differently by processors that fuse a multiplication with an addition.
constexpr double kRounding = 1e-9;

Error broken(std::string message) {
  return Error(ErrorCode::kFile, std::move(message), "Measure again; a record is not written by hand");
}

bool is_printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

int digits(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) value = value * 10 + (c - '0');
  return value;
}

Status check_origin(const Record& record) {
  if (!is_time(record.time)) {
    return broken(fmt::format("\"time\" is \"{}\" instead of a time like 2026-11-30T23:10:05Z", record.time));
  }
  if (std::find(kKinds.begin(), kKinds.end(), record.kind) == kKinds.end()) {
    return broken(fmt::format("\"kind\" is \"{}\", none of {}", record.kind, fmt::join(kKinds, ", ")));
  }
  if (record.command.empty() || record.command.front().empty()) {
    return broken("\"command\" is empty: nobody could run it again");
  }
  if (!record.commit.empty() && !is_hex(record.commit, 40)) {
    return broken(fmt::format("\"commit\" is \"{}\", not 40 hexadecimal digits", record.commit));
  }
  if (record.engine_version.empty()) return broken("\"engine_version\" is empty");
  return {};
}

Status check_subject(const Record& record) {
  // It names the file that the record is kept in.
  if (!is_hex(record.machine.id, 8)) {
    return broken(fmt::format("the machine's \"id\" is \"{}\", not 8 hexadecimal digits", record.machine.id));
  }
  const ModelIdentity& model = record.model;
  if (model.file.find('/') != std::string::npos) {
    return broken(fmt::format("the model's \"file\" is \"{}\": a name without folder is wanted", model.file));
  }
  // What measures the machine alone has no model at all.
  if (model != ModelIdentity{} && (model.file.empty() || !is_hex(model.hash, 32))) {
    return broken(
        fmt::format("the model \"{}\" has the hash \"{}\", not 32 hexadecimal digits", model.file, model.hash));
  }
  if (model.tensor_bytes.contains("")) return broken("a type in \"tensor_bytes\" has no name");
  if (record.settings.contains("")) return broken("a setting has no name");
  return {};
}

Status check_figure(const Figure& figure) {
  if (!is_name(figure.name)) return broken(fmt::format("\"{}\" cannot be the name of a figure", figure.name));
  const std::string where = fmt::format("figure \"{}\"", figure.name);
  if (figure.unit.empty() || figure.unit.size() > kLongestName || !is_printable(figure.unit)) {
    return broken(where + " has no unit that can be printed");
  }
  if (figure.samples.empty()) return broken(where + " has no samples");
  for (const double value : figure.samples) {
    if (!std::isfinite(value)) return broken(where + " has a sample that is not a number");
  }
  // Only the interval may have been found in another way than today's.
  if (figure.median != median(figure.samples)) {
    return broken(
        fmt::format("{}: the median of its samples is {}, not {}", where, median(figure.samples), figure.median));
  }
  const double variation = coefficient_of_variation(figure.samples);
  if (!(std::fabs(figure.variation - variation) <= kRounding * (1 + variation))) {
    return broken(fmt::format("{}: the variation of its samples is {}, not {}", where, variation, figure.variation));
  }
  const auto [least, most] = std::minmax_element(figure.samples.begin(), figure.samples.end());
  if (!(*least <= figure.low && figure.low <= figure.median && figure.median <= figure.high && figure.high <= *most)) {
    return broken(
        fmt::format("{}: {} to {} is no interval of the median of its samples", where, figure.low, figure.high));
  }
  return {};
}

Status check_figures(const std::vector<Figure>& figures) {
  if (figures.empty()) return broken("there are no figures: nothing was measured");
  std::set<std::string_view> names;
  for (const Figure& figure : figures) {
    KAZEIA_TRY(check_figure(figure));
    if (!names.insert(figure.name).second) {
      return broken(fmt::format("there are two figures \"{}\"", figure.name));
    }
  }
  return {};
}

Status check_moments(const std::vector<MachineMoment>& moments) {
  constexpr double kColdest = -273.15;
  double before = 0;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const MachineMoment& moment = moments[i];
    const std::string where = fmt::format("moment {}", i + 1);
    if (!(std::isfinite(moment.seconds) && moment.seconds >= before)) {
      return broken(
          fmt::format("{}: its \"seconds\" are {}, before those of the moment before", where, moment.seconds));
    }
    before = moment.seconds;
    for (const auto& [name, value] :
         {std::pair{"load_average", moment.load_average}, std::pair{"foreign_cpu", moment.foreign_cpu},
          std::pair{"clock_mhz", moment.clock_mhz}}) {
      if (!(std::isfinite(value) && value >= 0)) return broken(fmt::format("{}: its \"{}\" is {}", where, name, value));
    }
    if (!(std::isfinite(moment.temperature_c) && moment.temperature_c >= kColdest)) {
      return broken(fmt::format("{}: its \"temperature_c\" is {}", where, moment.temperature_c));
    }
  }
  return {};
}

}  // namespace

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// Of fixed width, so that texts are in order as times are.
bool is_time(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool fits = kForm[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == kForm[i];
    if (!fits) return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(digits(text, 0, 4)),
                                         std::chrono::month(static_cast<unsigned>(digits(text, 5, 2))),
                                         std::chrono::day(static_cast<unsigned>(digits(text, 8, 2)))};
  return date.ok() && digits(text, 11, 2) < 24 && digits(text, 14, 2) < 60 && digits(text, 17, 2) < 60;
}

Status check_rules(const Record& record) {
  KAZEIA_TRY(check_origin(record));
  KAZEIA_TRY(check_subject(record));
  KAZEIA_TRY(check_figures(record.figures));
  return check_moments(record.moments);
}

}  // namespace kazeia::bench
