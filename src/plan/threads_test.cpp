#include "plan/threads.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace kazeia::plan {
namespace {

void add_cores(MachineFacts& machine, int count, std::uint32_t capacity, std::uint64_t max_khz,
               int threads_per_core = 1) {
  const int first_core = static_cast<int>(machine.cores.size());
  for (int i = 0; i < count * threads_per_core; ++i) {
    CoreFacts core;
    core.id = static_cast<int>(machine.cores.size());
    core.allowed = true;
    core.core_id = first_core + i / threads_per_core;
    core.capacity = capacity;
    core.max_khz = max_khz;
    machine.cores.push_back(core);
  }
}

TEST(DefaultThreads, CountsHardwareThreadsOfACoreOnce) {
  MachineFacts machine;
  add_cores(machine, 4, 0, 3'000'000, 2);
  EXPECT_EQ(default_threads(machine), 4);
}

TEST(DefaultThreads, KeepsTheSameCoreNumberOfTwoPackagesApart) {
  MachineFacts machine;
  add_cores(machine, 2, 0, 0);
  add_cores(machine, 2, 0, 0);
  for (std::size_t i = 2; i < 4; ++i) {
    machine.cores[i].package = 1;
    machine.cores[i].core_id = machine.cores[i - 2].core_id;
  }
  EXPECT_EQ(default_threads(machine), 4);
}

TEST(DefaultThreads, LeavesOutTheEfficiencyCoresOfABigLittleMachine) {
  MachineFacts machine;
  add_cores(machine, 4, 325, 1'800'000);
  add_cores(machine, 3, 800, 2'400'000);
  add_cores(machine, 1, 1024, 2'840'000);
  EXPECT_EQ(default_threads(machine), 4);
}

TEST(DefaultThreads, TakesAllEightCoresOfASnapdragon8Elite) {
  MachineFacts machine;
  add_cores(machine, 6, 800, 3'532'800);
  add_cores(machine, 2, 1024, 4'320'000);
  EXPECT_EQ(default_threads(machine), 8);
  for (CoreFacts& core : machine.cores) core.capacity = 0;
  EXPECT_EQ(default_threads(machine), 8) << "by clock alone";
}

TEST(DefaultThreads, LeavesOutTheEfficiencyCoresOfAHybridPcByTheirClock) {
  MachineFacts machine;
  add_cores(machine, 6, 0, 5'300'000, 2);
  add_cores(machine, 8, 0, 3'900'000);
  EXPECT_EQ(default_threads(machine), 6);
  for (CoreFacts& core : machine.cores) core.capacity = 1024;  // a kernel that knows of no difference
  EXPECT_EQ(default_threads(machine), 6);
}

TEST(DefaultThreads, TakesAllCoresWhenNothingTellsThemApart) {
  MachineFacts machine;
  add_cores(machine, 3, 0, 0);
  EXPECT_EQ(default_threads(machine), 3);
  machine.cores[0].max_khz = 1'000'000;  // known for one only
  machine.cores[1].max_khz = 4'000'000;
  EXPECT_EQ(default_threads(machine), 3);
}

TEST(DefaultThreads, RespectsTheAffinityMask) {
  MachineFacts machine;
  add_cores(machine, 4, 1024, 3'000'000);
  add_cores(machine, 4, 300, 1'800'000);
  for (std::size_t i = 0; i < 6; ++i) machine.cores[i].allowed = false;
  EXPECT_EQ(default_threads(machine), 2) << "the efficiency cores are the best of what is allowed";
}

TEST(DefaultThreads, RoundsTheContainersQuotaDownButNotToZero) {
  MachineFacts machine;
  add_cores(machine, 8, 0, 0);
  machine.cgroup_cpu_quota = 2.9;
  EXPECT_EQ(default_threads(machine), 2);
  machine.cgroup_cpu_quota = 0.3;
  EXPECT_EQ(default_threads(machine), 1);
  machine.cgroup_cpu_quota = 64;
  EXPECT_EQ(default_threads(machine), 8);
}

TEST(DefaultThreads, IsOneOnAMachineThatTellsNothing) {
  EXPECT_EQ(default_threads({}), 1);
  MachineFacts machine;
  add_cores(machine, 2, 0, 0);
  for (CoreFacts& core : machine.cores) core.allowed = false;
  EXPECT_EQ(default_threads(machine), 1);
}

TEST(DefaultThreadPlan, SaysWhatDecided) {
  MachineFacts machine;
  add_cores(machine, 8, 0, 0);
  EXPECT_EQ(default_thread_plan(machine).reason, "8 performance cores of 8 physical cores");
  machine.cgroup_cpu_quota = 2;
  EXPECT_EQ(default_thread_plan(machine).reason, "the container may use 2 CPUs");
}

}  // namespace
}  // namespace kazeia::plan
