#include "base/cpu_list.h"

#include <charconv>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace kazeia {
namespace {

std::optional<int> cpu_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0 || number >= CPU_SETSIZE) return {};
  return number;
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  const Error wrong(ErrorCode::kUsage, fmt::format("'{}' is not a list of cores", text),
                    "Give numbers and ranges, as in 0-5 or 2,3");
  std::set<int> cpus;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const std::optional<int> first = cpu_number(part.substr(0, dash));
    const std::optional<int> last = dash == std::string_view::npos ? first : cpu_number(part.substr(dash + 1));
    if (!first || !last || *first > *last) return wrong;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpu);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string cpu_list_text(std::span<const int> cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", cpus[first]) : fmt::format("{}-{}", cpus[first], cpus[last]);
    first = last + 1;
  }
  return text;
}

OnCpus::OnCpus(std::span<const int> cpus) {
  if (cpus.empty() || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &wanted);
  changed_ = ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

OnCpus::~OnCpus() {
  if (changed_) (void)::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace kazeia
