#include "base/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia {
namespace {

// Above any machine this runs on; bounds what a damaged "0-4294967295" list can make us allocate.
constexpr int kMostCpus = 4096;
// cgroup v1 writes "no limit" as the largest page-aligned 63-bit number.
constexpr std::uint64_t kNoMemoryLimit = std::uint64_t{1} << 60;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

template <typename Number>
std::optional<Number> number(std::string_view text) {
  text = trimmed(text);
  Number value{};
  if constexpr (std::is_floating_point_v<Number>) {
    // Not from_chars, which the C++ library of Android's NDK has for whole numbers only.
    const std::string terminated(text);
    char* after = nullptr;
    value = static_cast<Number>(std::strtod(terminated.c_str(), &after));
    if (after == terminated.c_str()) return std::nullopt;
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end == text.data()) return std::nullopt;
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return parts;
}

// "0-3,8" as the kernel writes CPU lists.
std::vector<int> cpu_list(std::string_view text) {
  std::vector<int> ids;
  for (const std::string_view part : split(trimmed(text), ',')) {
    const std::size_t dash = part.find('-');
    const auto first = number<int>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (int id = *first; id <= std::min(*last, kMostCpus - 1); ++id) ids.push_back(id);
  }
  return ids;
}

// procfs and sysfs under an injectable root. Their files report size 0, so they are read to the end.
class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {
    if (root_.empty() || root_.back() != '/') root_ += '/';
  }

  std::optional<std::string> text(const std::string& path) const {
    const int fd = ::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::nullopt;
    std::string content;
    std::array<char, 4096> piece;
    ssize_t n = 0;
    while ((n = ::read(fd, piece.data(), piece.size())) != 0) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;
      content.append(piece.data(), static_cast<std::size_t>(n));
    }
    ::close(fd);
    if (n < 0) return std::nullopt;
    return content;
  }
  std::string line(const std::string& path) const { return std::string(trimmed(text(path).value_or(""))); }
  template <typename Number>
  std::optional<Number> value(const std::string& path) const {
    const auto content = text(path);
    return content ? number<Number>(*content) : std::nullopt;
  }
  // The rest of the first line that begins with `key`, without a colon in front; for "key: value" and "key value".
  std::optional<std::string> field(const std::string& path, std::string_view key) const {
    const std::string content = text(path).value_or("");
    for (const std::string_view row : split(content, '\n')) {
      if (!row.starts_with(key)) continue;
      std::string_view rest = row.substr(key.size());
      if (rest.empty() || (rest.front() != ':' && rest.front() != ' ' && rest.front() != '\t')) continue;
      rest = trimmed(rest);
      if (rest.starts_with(':')) rest.remove_prefix(1);
      return std::string(trimmed(rest));
    }
    return std::nullopt;
  }
  // "MemTotal:  24684080 kB" in bytes, 0 if absent.
  std::uint64_t kibibytes(const std::string& path, std::string_view key) const {
    return number<std::uint64_t>(field(path, key).value_or("")).value_or(0) * kKiB;
  }

 private:
  std::string root_;
};

std::vector<CoreFacts> read_cores(const Tree& tree) {
  const std::string base = "sys/devices/system/cpu/";
  std::vector<int> present = cpu_list(tree.line(base + "present"));
  if (present.empty()) {
    const std::string cpuinfo = tree.text("proc/cpuinfo").value_or("");
    for (const std::string_view row : split(cpuinfo, '\n')) {
      const std::size_t colon = row.find(':');
      if (colon == std::string_view::npos || trimmed(row.substr(0, colon)) != "processor") continue;
      if (const auto id = number<int>(row.substr(colon + 1))) present.push_back(*id);
    }
  }
  const std::vector<int> online_list = cpu_list(tree.line(base + "online"));
  const std::set<int> online(online_list.begin(), online_list.end());
  const auto affinity_text = tree.field("proc/self/status", "Cpus_allowed_list");
  const std::vector<int> affinity_list = cpu_list(affinity_text.value_or(""));
  const std::set<int> affinity(affinity_list.begin(), affinity_list.end());

  std::vector<CoreFacts> cores;
  for (const int id : present) {
    const std::string cpu = fmt::format("{}cpu{}/", base, id);
    CoreFacts core;
    core.id = id;
    core.allowed = (online.empty() || online.contains(id)) && (affinity.empty() || affinity.contains(id));
    core.package = std::max(0, tree.value<int>(cpu + "topology/physical_package_id").value_or(0));
    // The kernel's core_id repeats between the clusters of an Arm machine; the sibling list does not.
    const std::vector<int> siblings = cpu_list(tree.line(cpu + "topology/thread_siblings_list"));
    core.core_id = siblings.empty() ? tree.value<int>(cpu + "topology/core_id").value_or(id) : siblings.front();
    core.capacity = tree.value<std::uint32_t>(cpu + "cpu_capacity").value_or(0);
    core.max_khz = tree.value<std::uint64_t>(cpu + "cpufreq/cpuinfo_max_freq").value_or(0);
    core.governor = tree.line(cpu + "cpufreq/scaling_governor");
    core.scaling_driver = tree.line(cpu + "cpufreq/scaling_driver");
    cores.push_back(std::move(core));
  }
  std::sort(cores.begin(), cores.end(), [](const CoreFacts& a, const CoreFacts& b) { return a.id < b.id; });
  return cores;
}

std::uint64_t cache_bytes(std::string_view text) {
  text = trimmed(text);
  const std::uint64_t value = number<std::uint64_t>(text).value_or(0);
  if (text.ends_with('K')) return value * kKiB;
  if (text.ends_with('M')) return value * kMiB;
  return value;
}

std::vector<CacheFacts> read_caches(const Tree& tree, const std::vector<CoreFacts>& cores) {
  std::vector<CacheFacts> caches;
  for (const CoreFacts& core : cores) {
    for (int index = 0; index < 8; ++index) {
      const std::string folder = fmt::format("sys/devices/system/cpu/cpu{}/cache/index{}/", core.id, index);
      const auto level = tree.value<int>(folder + "level");
      if (!level) break;
      CacheFacts cache{*level, tree.line(folder + "type"), cache_bytes(tree.line(folder + "size")),
                       cpu_list(tree.line(folder + "shared_cpu_list"))};
      if (cache.cores.empty()) cache.cores = {core.id};
      // Every sharer describes it; the lowest id lists it.
      if (cache.cores.front() == core.id) caches.push_back(std::move(cache));
    }
  }
  std::stable_sort(caches.begin(), caches.end(),
                   [](const CacheFacts& a, const CacheFacts& b) { return a.level < b.level; });
  return caches;
}

// The folder of this process in a cgroup hierarchy and every folder above it up to the mount, because a
// limit anywhere on that path holds. In a container the path in /proc may name folders that are only
// visible outside; the mount itself is then the container's own folder and is still read.
std::vector<std::string> cgroup_folders(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path + "/");
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(mount + "/");
  return folders;
}

struct ContainerLimits {
  double cpus = 0;                      // 0 = none
  std::uint64_t memory_bytes = 0;       // 0 = none
  std::uint64_t memory_left_bytes = 0;  // meaningful with a memory limit only

  void cap_cpus(double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    const double limit = quota / period;
    cpus = cpus > 0 ? std::min(cpus, limit) : limit;
  }
  // `reclaimable`: page cache counted in `used` that the kernel gives back when memory is wanted.
  void cap_memory(std::uint64_t limit, std::uint64_t used, std::uint64_t reclaimable) {
    if (limit == 0 || limit >= kNoMemoryLimit) return;
    const std::uint64_t held = used - std::min(used, reclaimable);
    const std::uint64_t left = limit - std::min(limit, held);
    memory_left_bytes = memory_bytes > 0 ? std::min(memory_left_bytes, left) : left;
    memory_bytes = memory_bytes > 0 ? std::min(memory_bytes, limit) : limit;
  }
};

void read_cgroup_v2(const Tree& tree, const std::string& folder, ContainerLimits& limits) {
  const std::string cpu = tree.line(folder + "cpu.max");  // "200000 100000" or "max 100000"
  const std::size_t space = cpu.find(' ');
  if (space != std::string::npos) {
    limits.cap_cpus(number<double>(std::string_view(cpu).substr(0, space)).value_or(0),
                    number<double>(std::string_view(cpu).substr(space)).value_or(0));
  }
  limits.cap_memory(
      tree.value<std::uint64_t>(folder + "memory.max").value_or(0),
      tree.value<std::uint64_t>(folder + "memory.current").value_or(0),
      number<std::uint64_t>(tree.field(folder + "memory.stat", "inactive_file").value_or("")).value_or(0));
}

ContainerLimits read_cgroups(const Tree& tree) {
  ContainerLimits limits;
  const std::string memberships = tree.text("proc/self/cgroup").value_or("");
  for (const std::string_view row : split(memberships, '\n')) {  // "4:memory:/a/b" or "0::/a/b"
    const std::size_t first = row.find(':');
    const std::size_t second = first == std::string_view::npos ? first : row.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(row.substr(first + 1, second - first - 1));
    const std::string path(trimmed(row.substr(second + 1)));
    if (controllers.empty()) {
      for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"}) {
        for (const std::string& folder : cgroup_folders(mount, path)) read_cgroup_v2(tree, folder, limits);
      }
      continue;
    }
    for (const std::string_view controller : split(controllers, ',')) {
      if (controller != "cpu" && controller != "memory") continue;
      for (const std::string& name : {std::string(controller), controllers}) {
        for (const std::string& folder : cgroup_folders("sys/fs/cgroup/" + name, path)) {
          limits.cap_cpus(tree.value<double>(folder + "cpu.cfs_quota_us").value_or(0),
                          tree.value<double>(folder + "cpu.cfs_period_us").value_or(0));
          limits.cap_memory(
              tree.value<std::uint64_t>(folder + "memory.limit_in_bytes").value_or(0),
              tree.value<std::uint64_t>(folder + "memory.usage_in_bytes").value_or(0),
              number<std::uint64_t>(tree.field(folder + "memory.stat", "total_inactive_file").value_or(""))
                  .value_or(0));
        }
      }
    }
  }
  return limits;
}

void read_memory(const Tree& tree, MachineFacts& facts) {
  facts.total_memory_bytes = tree.kibibytes("proc/meminfo", "MemTotal");
  facts.available_memory_bytes = tree.kibibytes("proc/meminfo", "MemAvailable");
  facts.swap_total_bytes = tree.kibibytes("proc/meminfo", "SwapTotal");
  facts.swap_free_bytes = tree.kibibytes("proc/meminfo", "SwapFree");
  const ContainerLimits limits = read_cgroups(tree);
  facts.cgroup_cpu_quota = limits.cpus;
  // A limit above the physical memory limits nothing.
  if (limits.memory_bytes == 0 || (facts.total_memory_bytes > 0 && limits.memory_bytes >= facts.total_memory_bytes)) {
    return;
  }
  facts.cgroup_memory_limit_bytes = limits.memory_bytes;
  facts.available_memory_bytes = facts.total_memory_bytes == 0
                                     ? limits.memory_left_bytes
                                     : std::min(facts.available_memory_bytes, limits.memory_left_bytes);
  facts.total_memory_bytes = limits.memory_bytes;
}

constexpr std::array<std::string_view, 26> kMatrixInstructionSets = {
    "ssse3",    "f16c",     "fma",        "avx",         "avx2",        "avx_vnni",    "avx512f",
    "avx512bw", "avx512vl", "avx512vbmi", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_int8", "amx_bf16", "asimd",      "asimdhp",     "asimddp",     "i8mm",        "bf16",
    "sve",      "sve2",     "svei8mm",    "sme",         "sme2"};

void read_cpuinfo(const Tree& tree, MachineFacts& facts) {
  const std::string cpuinfo = tree.text("proc/cpuinfo").value_or("");
  std::optional<std::set<std::string_view>> common;
  std::map<std::string_view, std::string_view> first;  // of each key
  for (const std::string_view row : split(cpuinfo, '\n')) {
    const std::size_t colon = row.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trimmed(row.substr(0, colon));
    const std::string_view value = trimmed(row.substr(colon + 1));
    first.emplace(key, value);
    if (key != "flags" && key != "Features") continue;
    const std::vector<std::string_view> words = split(value, ' ');
    std::set<std::string_view> flags(words.begin(), words.end());
    if (common) std::erase_if(*common, [&](std::string_view flag) { return !flags.contains(flag); });
    if (!common) common = std::move(flags);
  }
  for (const std::string_view name : kMatrixInstructionSets) {
    if (common && common->contains(name)) facts.instruction_sets.emplace_back(name);
  }

  // On Arm, /proc/cpuinfo names the part by number only; the system on chip and the device tree have names.
  std::string name(first.contains("model name") ? first["model name"] : std::string_view{});
  if (name.empty() && first.contains("Hardware")) name = first["Hardware"];
  if (name.empty()) name = tree.line("sys/devices/soc0/machine");
  if (name.empty()) {
    name = tree.line("proc/device-tree/model");
    std::erase(name, '\0');  // device-tree strings carry their terminator
  }
  if (name.empty() && first.contains("CPU implementer")) {
    name = fmt::format("implementer {} part {}", first["CPU implementer"], first["CPU part"]);
  }
  facts.cpu_model = name;
}

std::string chosen_in_brackets(const std::string& text) {  // "always [madvise] never"
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return text.substr(open + 1, close - open - 1);
}

}  // namespace

bool MachineFacts::has(std::string_view instruction_set) const {
  return std::find(instruction_sets.begin(), instruction_sets.end(), instruction_set) != instruction_sets.end();
}

int MachineFacts::allowed_cores() const {
  return static_cast<int>(std::count_if(cores.begin(), cores.end(), [](const CoreFacts& c) { return c.allowed; }));
}

int MachineFacts::allowed_physical_cores() const {
  std::set<std::pair<int, int>> physical;
  for (const CoreFacts& core : cores) {
    if (core.allowed) physical.emplace(core.package, core.core_id);
  }
  return static_cast<int>(physical.size());
}

MachineFacts read_machine(const std::string& root) {
  const Tree tree(root);
  MachineFacts facts;
  facts.cores = read_cores(tree);
  facts.caches = read_caches(tree, facts.cores);
  read_memory(tree, facts);
  read_cpuinfo(tree, facts);
  facts.huge_pages = chosen_in_brackets(tree.line("sys/kernel/mm/transparent_hugepage/enabled"));
  facts.page_bytes = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  facts.load_average = tree.value<double>("proc/loadavg").value_or(-1);
  const std::string release = tree.line("proc/sys/kernel/osrelease");
  if (!release.empty()) facts.kernel = "Linux " + release;
  return facts;
}

ProcessMemory read_process_memory(const std::string& root) {
  const Tree tree(root);
  return {tree.kibibytes("proc/self/status", "VmRSS"), tree.kibibytes("proc/self/status", "VmHWM")};
}

}  // namespace kazeia
