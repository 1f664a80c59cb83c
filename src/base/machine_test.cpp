#include "base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;

// A folder with the proc/ and sys/ files of some other machine.
class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-machine-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text << "\n";
  }
  void write_cpu(int id, const std::string& file, const std::string& text) {
    write(fmt::format("sys/devices/system/cpu/cpu{}/{}", id, file), text);
  }
  void write_cpu_lists(const std::string& present, const std::string& online, const std::string& affinity) {
    write("sys/devices/system/cpu/present", present);
    write("sys/devices/system/cpu/online", online);
    write("proc/self/status", "Name:\tkazeia\nCpus_allowed:\tff\nCpus_allowed_list:\t" + affinity);
  }
  void write_memory(std::uint64_t total_kib, std::uint64_t available_kib) {
    write("proc/meminfo", fmt::format("MemTotal:       {} kB\nMemFree:        1000 kB\nMemAvailable:   {} kB\n"
                                      "SwapTotal:      2048 kB\nSwapFree:       1024 kB",
                                      total_kib, available_kib));
  }
  // Six performance and two prime cores without hardware threads; the kernel repeats core_id per cluster.
  void describe_tablet() {
    write_cpu_lists("0-7", "0-7", "0-7");
    for (int id = 0; id < 8; ++id) {
      const bool prime = id >= 6;
      write_cpu(id, "topology/physical_package_id", "-1");
      write_cpu(id, "topology/core_id", std::to_string(prime ? id - 6 : id));
      write_cpu(id, "topology/thread_siblings_list", std::to_string(id));
      write_cpu(id, "cpu_capacity", prime ? "1024" : "792");
      write_cpu(id, "cpufreq/cpuinfo_max_freq", prime ? "4473600" : "3532800");
      write_cpu(id, "cpufreq/scaling_governor", "walt");
      write_cpu(id, "cpufreq/scaling_driver", "qcom-cpufreq-hw");
    }
    std::string cpuinfo;
    for (int id = 0; id < 8; ++id) {
      cpuinfo += fmt::format(
          "processor\t: {}\nFeatures\t: fp asimd asimdhp asimddp i8mm bf16 sha3{}\n"
          "CPU implementer\t: 0x51\nCPU part\t: 0x001\n\n",
          id, id >= 6 ? " sme" : "");
    }
    write("proc/cpuinfo", cpuinfo);
    write("sys/devices/soc0/machine", "SM8750");
    write_memory(15'600'000, 9'000'000);
  }

  MachineFacts facts() const { return read_machine(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(Machine, WithHardwareThreadsCountsPhysicalCores) {
  write_cpu_lists("0-3", "0-3", "0-3");
  for (int id = 0; id < 4; ++id) {
    write_cpu(id, "topology/physical_package_id", "0");
    write_cpu(id, "topology/core_id", std::to_string(id % 2));
    write_cpu(id, "topology/thread_siblings_list", id % 2 == 0 ? "0,2" : "1,3");
  }
  const MachineFacts machine = facts();
  EXPECT_EQ(machine.allowed_cores(), 4);
  EXPECT_EQ(machine.allowed_physical_cores(), 2);
  EXPECT_EQ(machine.cores[0].core_id, machine.cores[2].core_id);
  EXPECT_NE(machine.cores[0].core_id, machine.cores[1].core_id);
}

TEST_F(Machine, WithHardwareThreadsAndNoSiblingListUsesTheKernelsCoreId) {
  write_cpu_lists("0-3", "0-3", "0-3");
  for (int id = 0; id < 4; ++id) {
    write_cpu(id, "topology/physical_package_id", id < 2 ? "0" : "1");
    write_cpu(id, "topology/core_id", "0");
  }
  EXPECT_EQ(facts().allowed_physical_cores(), 2);
}

TEST_F(Machine, TabletShowsItsTwoClustersWithCapacities) {
  describe_tablet();
  const MachineFacts machine = facts();
  ASSERT_EQ(machine.cores.size(), 8u);
  EXPECT_EQ(machine.allowed_physical_cores(), 8);
  EXPECT_EQ(machine.cores[0].capacity, 792u);
  EXPECT_EQ(machine.cores[7].capacity, 1024u);
  EXPECT_EQ(machine.cores[7].max_khz, 4'473'600u);
  EXPECT_EQ(machine.cores[7].package, 0);
  EXPECT_EQ(machine.cores[7].governor, "walt");
  EXPECT_EQ(machine.cpu_model, "SM8750");
}

TEST_F(Machine, TabletKeepsOnlyInstructionSetsThatEveryCoreHas) {
  describe_tablet();
  EXPECT_THAT(facts().instruction_sets, ElementsAre("asimd", "asimdhp", "asimddp", "i8mm", "bf16"));
  EXPECT_TRUE(facts().has("i8mm"));
  EXPECT_FALSE(facts().has("sme"));
}

TEST_F(Machine, PcNamesItsModelAndMatrixInstructionSets) {
  write_cpu_lists("0-1", "0-1", "0-1");
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse2 ssse3 fma f16c avx avx2 avx512f avx512bw avx512vl "
        "avx512_bf16 avx512vbmi avx512_vnni\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse2 ssse3 fma "
        "f16c avx avx2 avx512f avx512bw avx512vl avx512_bf16 avx512vbmi avx512_vnni\n");
  const MachineFacts machine = facts();
  EXPECT_EQ(machine.cpu_model, "AMD EPYC");
  EXPECT_TRUE(machine.has("avx512_vnni"));
  EXPECT_TRUE(machine.has("avx512vbmi"));
  EXPECT_FALSE(machine.has("sse2"));
  EXPECT_EQ(machine.cores[0].capacity, 0u);
}

TEST_F(Machine, CoresThatAreOfflineOrOutsideTheAffinityMaskAreNotAllowed) {
  write_cpu_lists("0-3", "0-2", "1-3");
  const MachineFacts machine = facts();
  ASSERT_EQ(machine.cores.size(), 4u);
  EXPECT_FALSE(machine.cores[0].allowed);  // not in the mask
  EXPECT_TRUE(machine.cores[1].allowed);
  EXPECT_TRUE(machine.cores[2].allowed);
  EXPECT_FALSE(machine.cores[3].allowed);  // offline
}

TEST_F(Machine, CoresComeFromCpuinfoWhenSysfsIsHidden) {
  write("proc/cpuinfo", "processor\t: 0\n\nprocessor\t: 1\n");
  EXPECT_EQ(facts().allowed_cores(), 2);
}

TEST_F(Machine, ContainerOfVersion2TakesTheLowestLimitOnItsPath) {
  write_memory(16 * 1024 * 1024, 12 * 1024 * 1024);
  write("proc/self/cgroup", "0::/app.slice/kazeia.scope");
  write("sys/fs/cgroup/app.slice/kazeia.scope/cpu.max", "max 100000");
  write("sys/fs/cgroup/app.slice/cpu.max", "150000 100000");
  write("sys/fs/cgroup/app.slice/kazeia.scope/memory.max", "max");
  write("sys/fs/cgroup/app.slice/memory.max", std::to_string(4 * kGiB));
  write("sys/fs/cgroup/app.slice/memory.current", std::to_string(3 * kGiB));
  write("sys/fs/cgroup/app.slice/memory.stat", fmt::format("anon 1\ninactive_file {}\nactive_file 7", 1 * kGiB));
  const MachineFacts machine = facts();
  EXPECT_DOUBLE_EQ(machine.cgroup_cpu_quota, 1.5);
  EXPECT_EQ(machine.total_memory_bytes, 4 * kGiB);
  EXPECT_EQ(machine.cgroup_memory_limit_bytes, 4 * kGiB);
  EXPECT_EQ(machine.available_memory_bytes, 2 * kGiB);  // 4 limit - 3 used + 1 reclaimable
}

TEST_F(Machine, ContainerOfVersion1WhosePathIsOnlyVisibleOutsideIsReadAtTheMount) {
  write_memory(16 * 1024 * 1024, 12 * 1024 * 1024);
  write("proc/self/cgroup", "4:memory:/docker/0123\n2:cpu,cpuacct:/docker/0123\n1:name=systemd:/");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * kGiB));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1 * kGiB));
  write("sys/fs/cgroup/memory/memory.stat", fmt::format("cache 5\ntotal_inactive_file {}", 512 * kMiB));
  const MachineFacts machine = facts();
  EXPECT_DOUBLE_EQ(machine.cgroup_cpu_quota, 0.5);
  EXPECT_EQ(machine.total_memory_bytes, 2 * kGiB);
  EXPECT_EQ(machine.available_memory_bytes, 1 * kGiB + 512 * kMiB);
}

TEST_F(Machine, WithoutContainerLimitsReportsItsOwnMemory) {
  write_memory(16 * 1024 * 1024, 12 * 1024 * 1024);
  write("proc/self/cgroup", "4:memory:/\n1:cpu:/");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // "none", as version 1 writes it
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1 * kGiB));
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  const MachineFacts machine = facts();
  EXPECT_EQ(machine.cgroup_cpu_quota, 0);
  EXPECT_EQ(machine.cgroup_memory_limit_bytes, 0u);
  EXPECT_EQ(machine.total_memory_bytes, 16 * kGiB);
  EXPECT_EQ(machine.available_memory_bytes, 12 * kGiB);
  EXPECT_EQ(machine.swap_total_bytes, 2 * kMiB);
  EXPECT_EQ(machine.swap_free_bytes, 1 * kMiB);
}

TEST_F(Machine, ListsASharedCacheOnce) {
  write_cpu_lists("0-1", "0-1", "0-1");
  for (int id = 0; id < 2; ++id) {
    write_cpu(id, "cache/index0/level", "1");
    write_cpu(id, "cache/index0/type", "Data");
    write_cpu(id, "cache/index0/size", "32K");
    write_cpu(id, "cache/index0/shared_cpu_list", std::to_string(id));
    write_cpu(id, "cache/index1/level", "3");
    write_cpu(id, "cache/index1/type", "Unified");
    write_cpu(id, "cache/index1/size", "32M");
    write_cpu(id, "cache/index1/shared_cpu_list", "0-1");
  }
  const MachineFacts machine = facts();
  ASSERT_EQ(machine.caches.size(), 3u);
  EXPECT_EQ(machine.caches[0].bytes, 32 * kKiB);
  EXPECT_EQ(machine.caches[2].level, 3);
  EXPECT_EQ(machine.caches[2].bytes, 32 * kMiB);
  EXPECT_THAT(machine.caches[2].cores, ElementsAre(0, 1));
}

TEST_F(Machine, ReadsHugePagesLoadAndKernel) {
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  write("proc/loadavg", "1.25 1.02 0.55 1/87 5242");
  write("proc/sys/kernel/osrelease", "6.1.0-18-amd64");
  const MachineFacts machine = facts();
  EXPECT_EQ(machine.huge_pages, "madvise");
  EXPECT_DOUBLE_EQ(machine.load_average, 1.25);
  EXPECT_EQ(machine.kernel, "Linux 6.1.0-18-amd64");
}

TEST_F(Machine, WithNothingReadableLeavesEverythingUnknown) {
  const MachineFacts machine = facts();
  EXPECT_THAT(machine.cores, IsEmpty());
  EXPECT_THAT(machine.instruction_sets, IsEmpty());
  EXPECT_EQ(machine.total_memory_bytes, 0u);
  EXPECT_EQ(machine.available_memory_bytes, 0u);
  EXPECT_EQ(machine.cgroup_cpu_quota, 0);
  EXPECT_EQ(machine.cpu_model, "");
  EXPECT_EQ(machine.huge_pages, "");
  EXPECT_LT(machine.load_average, 0);
}

TEST_F(Machine, DamagedFilesDoNotInventCores) {
  write_cpu_lists("0-99999999999,-3,7-,x", "0-4294967295", "0-1");
  EXPECT_THAT(facts().cores, IsEmpty());
  write_cpu_lists("0-2000000000", "", "0-1");
  EXPECT_LE(facts().cores.size(), 4096u);
}

TEST_F(Machine, ThisOneHasACoreAndMemory) {
  const MachineFacts machine = read_machine();
  EXPECT_GE(machine.allowed_physical_cores(), 1);
  EXPECT_GT(machine.total_memory_bytes, 64 * kMiB);
  EXPECT_GT(machine.available_memory_bytes, 0u);
  EXPECT_GE(machine.page_bytes, 4096u);
}

TEST_F(Machine, ProcessMemoryComesFromStatus) {
  write("proc/self/status", "VmPeak:\t  900 kB\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB");
  const ProcessMemory memory = read_process_memory(root_.string());
  EXPECT_EQ(memory.rss_bytes, 100 * kKiB);
  EXPECT_EQ(memory.peak_rss_bytes, 200 * kKiB);
  EXPECT_THAT(read_process_memory().peak_rss_bytes, Gt(100 * kKiB));
}

}  // namespace
}  // namespace kazeia
