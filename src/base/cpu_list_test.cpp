#include "base/cpu_list.h"

#include <thread>

#include <gmock/gmock.h>

namespace kazeia {
namespace {

using testing::ElementsAre;

std::vector<int> parsed(std::string_view text) {
  const auto cpus = parse_cpu_list(text);
  EXPECT_TRUE(cpus.ok()) << text;
  return cpus.ok() ? *cpus : std::vector<int>();
}

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(CpuList, ReadsNumbersAndRangesInAnyOrder) {
  EXPECT_THAT(parsed("0"), ElementsAre(0));
  EXPECT_THAT(parsed("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(parsed("5,2-3,3"), ElementsAre(2, 3, 5));
}

TEST(CpuList, RefusesEverythingElse) {
  for (const char* text : {"", ",", "1,", "-1", "3-1", "0-", "a", "1 ,2", "1024", "0-99999999999", "1..3"}) {
    const auto cpus = parse_cpu_list(text);
    ASSERT_FALSE(cpus.ok()) << text;
    EXPECT_EQ(cpus.error().code(), ErrorCode::kUsage);
  }
}

TEST(CpuList, IsWrittenAsItIsRead) {
  for (const char* text : {"0", "0-1", "0-3,8", "2,4,6-7"}) EXPECT_EQ(cpu_list_text(parsed(text)), text);
  EXPECT_EQ(cpu_list_text({}), "");
}

TEST(OnCpus, HoldsForThisThreadAndThoseItStartsAndEndsWithTheScope) {
  const std::vector<int> before = cpus_of_this_thread();
  const std::vector<int> one{before.back()};
  std::vector<int> started;
  {
    const OnCpus only(one);
    EXPECT_EQ(cpus_of_this_thread(), one);
    std::thread([&] { started = cpus_of_this_thread(); }).join();
  }
  EXPECT_EQ(started, one);
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(OnCpus, LeavesTheThreadWhereItIsIfThereIsNoSuchCpu) {
  const std::vector<int> before = cpus_of_this_thread();
  for (const std::vector<int>& none : {std::vector<int>{}, std::vector<int>{1023}}) {
    const OnCpus only(none);
    EXPECT_EQ(cpus_of_this_thread(), before);
  }
}

}  // namespace
}  // namespace kazeia
