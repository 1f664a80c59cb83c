#include "plan/diagnosis.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia::plan {
namespace {

// A 4B model in Q4_0: 2.4 GiB of weights, about 0.6 GiB of context and intermediate results.
constexpr std::uint64_t kNeededFor4B = 3 * kGiB;
// A 0.8B model in Q4_0, counted the same way.
constexpr std::uint64_t kNeededFor08B = 800 * kMiB;
// Share of the usable CPUs that others may keep busy before a run is visibly slower and its figures worthless.
constexpr double kBusyShare = 0.5;

void check_memory(const MachineFacts& machine, std::vector<Problem>& problems) {
  const std::uint64_t free = machine.available_memory_bytes;
  if (machine.total_memory_bytes == 0 || free >= kNeededFor4B) return;
  const std::string limit =
      machine.cgroup_memory_limit_bytes > 0
          ? fmt::format(" (the container is limited to {})", format_bytes(machine.cgroup_memory_limit_bytes))
          : std::string();
  std::string next = machine.total_memory_bytes < kNeededFor4B ? "Use a smaller model"
                                                               : "Close other programs, or use a smaller model";
  if (free >= kNeededFor08B) next += "; a 0.8B model fits";
  problems.push_back({"little_memory",
                      fmt::format("{} of memory are free{}; a 4B model in Q4_0 needs about {}", format_bytes(free),
                                  limit, format_bytes(kNeededFor4B)),
                      next});
}

void check_instruction_sets(const MachineFacts& machine, Processor processor, std::vector<Problem>& problems) {
  if (machine.instruction_sets.empty() && machine.cpu_model.empty()) return;  // nothing was readable
  if (processor == Processor::kX86 && !machine.has("avx2")) {
    problems.push_back({"no_vector_instructions", "the processor has no AVX2",
                        "Expect a fraction of the usual speed; use a small model"});
  }
  if (processor == Processor::kArm && !machine.has("asimddp")) {
    problems.push_back({"no_vector_instructions", "the processor has no dot-product instructions (asimddp)",
                        "Expect a fraction of the usual speed; use a small model"});
  }
}

void check_cpu_limits(const MachineFacts& machine, std::vector<Problem>& problems) {
  const int allowed = machine.allowed_cores();
  if (machine.cgroup_cpu_quota > 0 && machine.cgroup_cpu_quota < allowed) {
    problems.push_back({"cpu_quota",
                        fmt::format("the container may use {:.2g} CPUs' worth of time although it sees {}",
                                    machine.cgroup_cpu_quota, allowed),
                        "Raise its CPU limit, or keep --threads at or below it"});
  }
  const int present = static_cast<int>(machine.cores.size());
  if (allowed > 0 && allowed < present) {
    problems.push_back({"fewer_cpus", fmt::format("this process may run on {} of {} CPUs", allowed, present),
                        "Look at `taskset -p $$` and at the container's cpuset if that is not intended"});
  }
}

void check_frequency(const MachineFacts& machine, std::vector<Problem>& problems) {
  // Drivers that steer the clock themselves call their normal mode "powersave".
  const auto held_low = std::count_if(machine.cores.begin(), machine.cores.end(), [](const CoreFacts& core) {
    return core.allowed && core.governor == "powersave" && !core.scaling_driver.starts_with("intel_pstate") &&
           !core.scaling_driver.starts_with("amd-pstate");
  });
  if (held_low == 0) return;
  problems.push_back(
      {"powersave_governor",
       fmt::format("the frequency governor of {} CPUs is powersave: they stay at their lowest clock", held_low),
       "Choose another: `cpupower frequency-set -g schedutil` as root"});
}

void check_load(const MachineFacts& machine, std::vector<Problem>& problems) {
  const int allowed = machine.allowed_cores();
  if (allowed == 0 || machine.load_average < std::max(1.0, kBusyShare * allowed)) return;
  problems.push_back(
      {"busy",
       fmt::format("other work kept {:.1f} of {} CPUs busy over the last minute", machine.load_average, allowed),
       "Wait until it is done before measuring; threads that wait for each other suffer most"});
}

void check_huge_pages(const MachineFacts& machine, std::vector<Problem>& problems) {
  if (machine.huge_pages != "never") return;
  problems.push_back({"no_huge_pages", "transparent huge pages are switched off, which slows reading the weights",
                      "Allow them: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` as root"});
}

}  // namespace

Processor this_processor() {
#if defined(__x86_64__) || defined(__i386__)
  return Processor::kX86;
#elif defined(__aarch64__) || defined(__arm__)
  return Processor::kArm;
#else
  return Processor::kOther;
#endif
}

std::vector<Problem> diagnose(const MachineFacts& machine, Processor processor) {
  std::vector<Problem> problems;
  check_memory(machine, problems);
  check_instruction_sets(machine, processor, problems);
  check_cpu_limits(machine, problems);
  check_frequency(machine, problems);
  check_load(machine, problems);
  check_huge_pages(machine, problems);
  return problems;
}

}  // namespace kazeia::plan
