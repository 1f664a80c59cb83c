#include "plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia::plan {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kLeastContext = 512;  // for less nobody talks
constexpr std::uint32_t kContextUnit = 256;   // in which the KV cache is allocated

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a > kMax - b ? kMax : a + b;
}

// One of the settings, made smaller; nothing if it is as small as it gets.
using Step = std::function<std::optional<std::pair<PlanSettings, std::string>>(PlanSettings)>;

std::optional<std::pair<PlanSettings, std::string>> without_checkpoints(PlanSettings settings) {
  constexpr std::uint64_t kFew = 64 * kMiB;
  if (settings.checkpoint_bytes <= kFew) return std::nullopt;
  settings.checkpoint_bytes = kFew;
  return std::pair(settings, std::string("--checkpoint-memory 64MB"));
}

std::optional<std::pair<PlanSettings, std::string>> smaller_ubatch(PlanSettings settings) {
  constexpr std::uint32_t kNarrow = 128;
  if (settings.ubatch_tokens <= kNarrow) return std::nullopt;
  settings.ubatch_tokens = kNarrow;
  return std::pair(settings, fmt::format("--ubatch {}", kNarrow));
}

std::optional<std::pair<PlanSettings, std::string>> eight_bit_cache(PlanSettings settings) {
  if (settings.kv_type != "f16") return std::nullopt;
  settings.kv_type = "q8_0";
  return std::pair(settings, std::string("--kv q8_0"));
}

// The longest context that fits, by bisection over multiples of its unit.
Result<std::optional<Change>> shorter_context(PlanSettings settings, const std::string& before,
                                              std::uint64_t budget_bytes, const Planner& planner) {
  std::uint32_t low = kLeastContext / kContextUnit;
  std::uint32_t high = settings.context_tokens / kContextUnit;
  const auto total = [&](std::uint32_t units) -> Result<std::uint64_t> {
    settings.context_tokens = units * kContextUnit;
    KAZEIA_ASSIGN(const MemoryPlan plan, planner(settings));
    return plan.peak_bytes();
  };
  if (high <= low) return std::optional<Change>();
  KAZEIA_ASSIGN(std::uint64_t best, total(low));
  if (best > budget_bytes) return std::optional<Change>();
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    KAZEIA_ASSIGN(const std::uint64_t bytes, total(middle));
    if (bytes <= budget_bytes) {
      low = middle;
      best = bytes;
    } else {
      high = middle;
    }
  }
  return std::optional(Change{before + fmt::format("--context {}", low * kContextUnit), best});
}

}  // namespace

std::uint64_t MemoryPlan::peak_bytes() const {
  std::uint64_t sum = 0;
  for (const MemoryPart& part : parts) sum = saturating_add(sum, part.bytes);
  return sum;
}

std::uint64_t MemoryPlan::evictable_bytes() const {
  std::uint64_t sum = 0;
  for (const MemoryPart& part : parts) sum = saturating_add(sum, part.evictable ? part.bytes : 0);
  return sum;
}

std::uint64_t MemoryPlan::bytes_of(const std::string& name) const {
  std::uint64_t sum = 0;
  for (const MemoryPart& part : parts) sum = saturating_add(sum, part.name == name ? part.bytes : 0);
  return sum;
}

std::uint64_t default_budget_bytes(std::uint64_t available_bytes) {
  constexpr std::uint64_t kTablet = 4 * kGiB;
  return available_bytes == 0 ? kTablet : std::min(kTablet, available_bytes);
}

Result<std::vector<Change>> changes_that_fit(const PlanSettings& settings, std::uint64_t budget_bytes,
                                             const Planner& planner, std::size_t most) {
  const std::array<Step, 3> steps{without_checkpoints, smaller_ubatch, eight_bit_cache};
  std::vector<Change> changes;
  const auto enough = [&] { return changes.size() >= most; };
  for (const Step& step : steps) {
    if (enough()) return changes;
    const auto changed = step(settings);
    if (!changed) continue;
    KAZEIA_ASSIGN(const MemoryPlan plan, planner(changed->first));
    if (plan.peak_bytes() <= budget_bytes) changes.push_back({changed->second, plan.peak_bytes()});
  }
  if (!enough()) {
    KAZEIA_ASSIGN(const std::optional<Change> shorter, shorter_context(settings, "", budget_bytes, planner));
    if (shorter) changes.push_back(*shorter);
  }
  for (const Step& step : steps) {
    if (enough()) return changes;
    const auto changed = step(settings);
    if (!changed) continue;
    KAZEIA_ASSIGN(const std::optional<Change> both,
                  shorter_context(changed->first, changed->second + " ", budget_bytes, planner));
    if (both) changes.push_back(*both);
  }
  return changes;
}

Status check_budget(const PlanSettings& settings, const MemoryPlan& plan, std::uint64_t budget_bytes,
                    const Planner& planner) {
  if (budget_bytes == 0 || plan.peak_bytes() <= budget_bytes) return {};
  KAZEIA_ASSIGN(const std::vector<Change> changes, changes_that_fit(settings, budget_bytes, planner));
  std::string next;
  for (const Change& change : changes) {
    next += fmt::format("{}{} ({})", next.empty() ? "Use " : ", or ", change.text, format_bytes(change.peak_bytes));
  }
  if (next.empty()) next = "Use a smaller model, or a larger --budget (0 = no limit)";
  return Error(ErrorCode::kTooLarge,
               fmt::format("it would take {} of memory, the budget is {}", format_bytes(plan.peak_bytes()),
                           format_bytes(budget_bytes)),
               next);
}

}  // namespace kazeia::plan
