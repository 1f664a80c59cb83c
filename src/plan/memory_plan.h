// What a model will take of the memory, part by part, and what would make it fit. Arithmetic: sizes come from
// engine/forecast.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace kazeia::plan {

struct MemoryPart {
  std::string name;     // stable, for --json: "weights", "kv_cache", "compute", ...
  std::string meaning;  // one phrase for people
  std::uint64_t bytes = 0;
  // Pages of a file that the system may drop and read again.
  bool evictable = false;
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;

  std::uint64_t peak_bytes() const;
  std::uint64_t evictable_bytes() const;
  std::uint64_t bytes_of(const std::string& name) const;  // 0 if there is no such part
};

// A change of the settings that makes a plan smaller.
struct Change {
  std::string text;  // as a person would type it: "--context 2048"
  std::uint64_t peak_bytes = 0;
};

// The settings that a plan depends on and that can be changed without another file.
struct PlanSettings {
  std::uint32_t context_tokens = 4096;
  std::string kv_type = "f16";  // "f16", "q8_0", "q4_0"
  std::uint32_t ubatch_tokens = 512;
  std::uint64_t checkpoint_bytes = 0;  // budget for kept states

  bool operator==(const PlanSettings&) const = default;
};
using Planner = std::function<Result<MemoryPlan>(const PlanSettings& settings)>;

// 4 GiB, or what the machine can give if that is less: what a tablet's system leaves to one program.
std::uint64_t default_budget_bytes(std::uint64_t available_bytes);

// What would fit, the change that costs the user least first, at most `most` of them: fewer kept states, a smaller
// ubatch, a coarser KV type, a shorter context, then two of them together. Empty if nothing does. Errors of `planner`.
Result<std::vector<Change>> changes_that_fit(const PlanSettings& settings, std::uint64_t budget_bytes,
                                             const Planner& planner, std::size_t most = 3);

// kTooLarge with the plan's total, the budget and those changes, if the plan does not fit; `budget_bytes` 0: it always
// does.
Status check_budget(const PlanSettings& settings, const MemoryPlan& plan, std::uint64_t budget_bytes,
                    const Planner& planner);

}  // namespace kazeia::plan
