#include "plan/threads.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace kazeia::plan {
namespace {

// Efficiency cores of Arm systems report 250 to 450 of 1024, middle and big cores 600 and more.
constexpr double kPerformanceCapacity = 0.5;
// Clocks separate classes less than capacities do: an x86 efficiency core reaches 0.72 to 0.74 of its
// neighbour, while the slower class of an SM8750 (0.82) and the unfavoured cores of a desktop are full cores.
constexpr double kPerformanceClock = 0.76;
// ggml's own limit (GGML_MAX_N_THREADS).
constexpr int kMaxThreads = 512;

struct PhysicalCore {
  std::uint32_t capacity = 0;
  std::uint64_t max_khz = 0;
};

std::vector<PhysicalCore> physical_cores(const MachineFacts& machine) {
  std::map<std::pair<int, int>, PhysicalCore> by_core;
  for (const CoreFacts& cpu : machine.cores) {
    if (!cpu.allowed) continue;
    PhysicalCore& core = by_core[{cpu.package, cpu.core_id}];
    core.capacity = std::max(core.capacity, cpu.capacity);
    core.max_khz = std::max(core.max_khz, cpu.max_khz);
  }
  std::vector<PhysicalCore> cores;
  cores.reserve(by_core.size());
  for (const auto& [id, core] : by_core) cores.push_back(core);
  return cores;
}

template <typename Number>
int count_at_least(const std::vector<PhysicalCore>& cores, Number PhysicalCore::*field, double share) {
  Number best = 0;
  for (const PhysicalCore& core : cores) {
    if (core.*field == 0) return static_cast<int>(cores.size());  // unknown for one: the classes are unknown
    best = std::max(best, core.*field);
  }
  const double least = static_cast<double>(best) * share;
  return static_cast<int>(std::count_if(
      cores.begin(), cores.end(), [&](const PhysicalCore& core) { return static_cast<double>(core.*field) >= least; }));
}

}  // namespace

ThreadPlan default_thread_plan(const MachineFacts& machine) {
  const std::vector<PhysicalCore> cores = physical_cores(machine);
  if (cores.empty()) return {1, "the kernel does not tell which cores there are"};

  // Capacity is the scheduler's own judgement and includes the clock; the clock alone is the fallback.
  const bool has_capacity = std::all_of(cores.begin(), cores.end(), [](const auto& core) { return core.capacity > 0; });
  const int performance = has_capacity ? count_at_least(cores, &PhysicalCore::capacity, kPerformanceCapacity)
                                       : count_at_least(cores, &PhysicalCore::max_khz, kPerformanceClock);
  // A capacity of 1024 for every core is what kernels report when they know of no difference.
  const int by_clock = count_at_least(cores, &PhysicalCore::max_khz, kPerformanceClock);
  const bool flat = has_capacity && performance == static_cast<int>(cores.size()) &&
                    std::all_of(cores.begin(), cores.end(), [](const auto& core) { return core.capacity == 1024; });
  int threads = std::min(flat ? by_clock : performance, kMaxThreads);
  ThreadPlan plan{threads, fmt::format("{} performance cores of {} physical cores", threads, cores.size())};

  if (machine.cgroup_cpu_quota > 0) {
    // Rounded down: the thread that exceeds the quota is stopped for the rest of the period, and all wait for it.
    const int quota = std::max(1, static_cast<int>(std::min<double>(machine.cgroup_cpu_quota, kMaxThreads)));
    if (quota < plan.threads) {
      plan = {quota, fmt::format("the container may use {:.2g} CPUs", machine.cgroup_cpu_quota)};
    }
  }
  return plan;
}

int default_threads(const MachineFacts& machine) {
  return default_thread_plan(machine).threads;
}

int default_threads(const MachineFacts& machine, std::span<const int> cores) {
  MachineFacts rest = machine;
  for (CoreFacts& core : rest.cores) {
    core.allowed &= cores.empty() || std::find(cores.begin(), cores.end(), core.id) != cores.end();
  }
  return default_threads(rest);
}

}  // namespace kazeia::plan
