// What this machine is, read from procfs and sysfs: cores, clusters, limits of the container, memory.
// Facts only; decisions from them live in plan/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kazeia {

// One logical CPU as the kernel numbers it.
struct CoreFacts {
  int id = 0;
  // Online, and in the affinity mask of this process (which a cpuset of the container narrows too).
  bool allowed = false;
  int package = 0;
  // Two CPUs with the same package and core_id are hardware threads of one physical core.
  int core_id = 0;
  std::uint32_t capacity = 0;  // the scheduler's relative capacity, 1024 = the fastest core; 0 = unknown
  std::uint64_t max_khz = 0;   // 0 = unknown
  std::string governor;        // of its frequency policy, "" = unknown
  std::string scaling_driver;  // "intel_pstate", "qcom-cpufreq-hw", ...; "" = unknown
};

// One cache, listed once however many CPUs share it.
struct CacheFacts {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  std::uint64_t bytes = 0;
  std::vector<int> cores;  // ids of the CPUs that share it
};

struct MachineFacts {
  std::vector<CoreFacts> cores;  // by id; empty if the kernel tells nothing
  double cgroup_cpu_quota = 0;   // CPUs' worth of time the container may use; 0 = no limit
  // Physical memory, or the container's limit if that is lower; 0 = unknown.
  std::uint64_t total_memory_bytes = 0;
  // What can be allocated without swapping: the kernel's estimate, or what is left of the container's
  // limit (its reclaimable page cache counts as free) if that is lower.
  std::uint64_t available_memory_bytes = 0;
  std::uint64_t cgroup_memory_limit_bytes = 0;  // 0 = no limit
  std::uint64_t swap_total_bytes = 0;
  std::uint64_t swap_free_bytes = 0;
  std::string cpu_model;  // "" = unknown
  // Those that matter to matrix kernels and that every core has, by the names in /proc/cpuinfo: "avx2",
  // "avx512f", "avx512vbmi", "avx512_vnni", ... or "asimddp", "i8mm", "bf16", "sve", ...
  std::vector<std::string> instruction_sets;
  std::string huge_pages;  // transparent huge pages: "always", "madvise", "never"; "" = unknown
  std::uint64_t page_bytes = 0;
  std::vector<CacheFacts> caches;
  double load_average = 0;  // runnable tasks over the last minute; negative = unknown
  std::string kernel;       // "Linux 6.1.0-18-amd64"

  bool has(std::string_view instruction_set) const;
  int allowed_cores() const;
  // Physical cores with at least one allowed CPU.
  int allowed_physical_cores() const;
};

// Never fails: what cannot be read keeps the value that means unknown. `root` is where proc/ and sys/ are, so
// that a test can describe another machine.
MachineFacts read_machine(const std::string& root = "/");

struct ProcessMemory {
  std::uint64_t rss_bytes = 0;       // resident now
  std::uint64_t peak_rss_bytes = 0;  // the most it ever was
};
// Of this process. Zero where the kernel does not tell.
ProcessMemory read_process_memory(const std::string& root = "/");

}  // namespace kazeia
