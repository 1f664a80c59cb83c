#include "bench/identity.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace kazeia::bench {
namespace {

MachineFacts tablet() {
  MachineFacts facts;
  for (int id = 0; id < 8; ++id) {
    CoreFacts core;
    core.id = id;
    core.allowed = true;
    facts.cores.push_back(core);
  }
  facts.cpu_model = "SM8750";
  facts.total_memory_bytes = 15'600'000 * kKiB;
  facts.kernel = "Linux 6.6.30-android15-8";
  return facts;
}

TEST(Identity, NamesTheMachine) {
  const MachineIdentity identity = machine_identity(tablet(), "aarch64");
  EXPECT_EQ(identity.name, "SM8750, 8 cores, 15 GiB");
  EXPECT_EQ(identity.system, "Linux 6.6 aarch64");
  EXPECT_EQ(identity.id.size(), 8U);
  EXPECT_EQ(identity.id.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(Identity, StaysTheSameAfterAnUpdateOfTheKernel) {
  MachineFacts updated = tablet();
  updated.kernel = "Linux 6.12.1";
  updated.total_memory_bytes -= 20 * kMiB;  // it keeps more for itself
  updated.available_memory_bytes = 5 * kGiB;
  updated.load_average = 3;
  EXPECT_EQ(machine_identity(updated, "aarch64").id, machine_identity(tablet(), "aarch64").id);
}

TEST(Identity, IsAnotherOneWithAnotherProcessorOrMemory) {
  MachineFacts larger = tablet();
  larger.total_memory_bytes += 8 * kGiB;
  EXPECT_NE(machine_identity(larger, "aarch64").id, machine_identity(tablet(), "aarch64").id);
  MachineFacts other = tablet();
  other.cpu_model = "SM8650";
  EXPECT_NE(machine_identity(other, "aarch64").id, machine_identity(tablet(), "aarch64").id);
  other = tablet();
  other.cores.pop_back();
  EXPECT_NE(machine_identity(other, "aarch64").id, machine_identity(tablet(), "aarch64").id);
  EXPECT_NE(machine_identity(tablet(), "armv8l").id, machine_identity(tablet(), "aarch64").id);
}

// Records of years are compared by it.
TEST(Identity, NeverChanges) {
  EXPECT_EQ(machine_identity(tablet(), "aarch64").id, "bcb38e24");
}

TEST(Identity, OfThisMachineAndProgramIsKnown) {
  EXPECT_EQ(machine_identity(), machine_identity());
  EXPECT_NE(machine_identity().system, "");
  EXPECT_NE(std::string(compiler()), "");
}

}  // namespace
}  // namespace kazeia::bench
