#include "plan/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace kazeia::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MachineFacts good_machine() {
  MachineFacts machine;
  for (int id = 0; id < 4; ++id) {
    CoreFacts core;
    core.id = core.core_id = id;
    core.allowed = true;
    core.governor = "schedutil";
    machine.cores.push_back(core);
  }
  machine.total_memory_bytes = 16 * kGiB;
  machine.available_memory_bytes = 12 * kGiB;
  machine.cpu_model = "a processor";
  machine.instruction_sets = {"avx2", "asimddp"};
  machine.huge_pages = "madvise";
  machine.load_average = 0.3;
  return machine;
}

std::vector<std::string> names(const MachineFacts& machine, Processor processor = Processor::kX86) {
  std::vector<std::string> found;
  for (const Problem& problem : diagnose(machine, processor)) {
    EXPECT_FALSE(problem.next.empty()) << problem.name;
    found.push_back(problem.name);
  }
  return found;
}

TEST(Diagnosis, OfAGoodMachineIsEmpty) {
  EXPECT_THAT(names(good_machine()), IsEmpty());
}

TEST(Diagnosis, OfAnUnknownMachineIsEmpty) {
  MachineFacts unknown;
  unknown.load_average = -1;
  EXPECT_THAT(names(unknown), IsEmpty());
}

TEST(Diagnosis, NamesTheFreeMemoryAndWhatStillFits) {
  MachineFacts machine = good_machine();
  machine.available_memory_bytes = 2 * kGiB;
  ASSERT_THAT(names(machine), ElementsAre("little_memory"));
  const Problem problem = diagnose(machine)[0];
  EXPECT_THAT(problem.sentence, HasSubstr("2.00 GiB"));
  EXPECT_THAT(problem.next, HasSubstr("Close other programs"));
  EXPECT_THAT(problem.next, HasSubstr("0.8B model fits"));
}

TEST(Diagnosis, BlamesTheContainerForItsMemoryLimit) {
  MachineFacts machine = good_machine();
  machine.total_memory_bytes = machine.cgroup_memory_limit_bytes = 1 * kGiB;
  machine.available_memory_bytes = 500 * kMiB;
  ASSERT_THAT(names(machine), ElementsAre("little_memory"));
  EXPECT_THAT(diagnose(machine)[0].sentence, HasSubstr("limited to 1.00 GiB"));
  EXPECT_EQ(diagnose(machine)[0].next, "Use a smaller model");
}

TEST(Diagnosis, AsksEachProcessorForItsOwnInstructions) {
  MachineFacts machine = good_machine();
  machine.instruction_sets = {"avx2"};
  EXPECT_THAT(names(machine, Processor::kX86), IsEmpty());
  EXPECT_THAT(names(machine, Processor::kArm), ElementsAre("no_vector_instructions"));
  machine.instruction_sets = {"asimddp"};
  EXPECT_THAT(names(machine, Processor::kArm), IsEmpty());
  EXPECT_THAT(names(machine, Processor::kX86), ElementsAre("no_vector_instructions"));
  EXPECT_THAT(names(machine, Processor::kOther), IsEmpty());
}

TEST(Diagnosis, ReportsAQuotaBelowTheCpusAndAnAffinityMask) {
  MachineFacts machine = good_machine();
  machine.cgroup_cpu_quota = 4;
  EXPECT_THAT(names(machine), IsEmpty());
  machine.cgroup_cpu_quota = 1.5;
  EXPECT_THAT(names(machine), ElementsAre("cpu_quota"));
  EXPECT_THAT(diagnose(machine)[0].sentence, HasSubstr("1.5 CPUs"));
  machine.cgroup_cpu_quota = 0;
  machine.cores[3].allowed = false;
  EXPECT_THAT(names(machine), ElementsAre("fewer_cpus"));
}

TEST(Diagnosis, KnowsThatPowersaveIsNormalForDriversThatSteerTheClock) {
  MachineFacts machine = good_machine();
  machine.cores[0].governor = "powersave";
  machine.cores[0].scaling_driver = "acpi-cpufreq";
  EXPECT_THAT(names(machine), ElementsAre("powersave_governor"));
  machine.cores[0].scaling_driver = "intel_pstate";
  EXPECT_THAT(names(machine), IsEmpty());
  machine.cores[0].scaling_driver = "amd-pstate-epp";
  EXPECT_THAT(names(machine), IsEmpty());
}

TEST(Diagnosis, ReportsALoadOfHalfTheCpus) {
  MachineFacts machine = good_machine();
  machine.load_average = 1.9;
  EXPECT_THAT(names(machine), IsEmpty());
  machine.load_average = 2.0;
  EXPECT_THAT(names(machine), ElementsAre("busy"));
}

TEST(Diagnosis, ReportsHugePagesThatAreOff) {
  MachineFacts machine = good_machine();
  machine.huge_pages = "never";
  EXPECT_THAT(names(machine), ElementsAre("no_huge_pages"));
}

}  // namespace
}  // namespace kazeia::plan
