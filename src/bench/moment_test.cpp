#include "bench/moment.h"

#include <unistd.h>

#include <fmt/format.h>

#include "base/units.h"
#include "bench/fake_root.h"

namespace kazeia::bench {
namespace {

class Moment : public FakeRoot {
 protected:
  // In seconds; a tick is a hundredth.
  void write_total(double user, double idle, double steal = 0) const {
    write("proc/stat", fmt::format("cpu  {:.0f} 0 0 {:.0f} 700 0 0 {:.0f} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0", user * ticks_,
                                   idle * ticks_, steal * ticks_));
  }
  void write_process(const std::string& id, double user, double ended_children) const {
    write("proc/" + id + "/stat", fmt::format("1 (a (b) c) S 1 1 1 0 -1 0 9 9 9 9 {:.0f} 0 {:.0f} 0 20 0 1",
                                              user * ticks_, ended_children * ticks_));
  }
  void write_zone(int id, const std::string& type, const std::string& temperature) const {
    write(fmt::format("sys/class/thermal/thermal_zone{}/type", id), type);
    write(fmt::format("sys/class/thermal/thermal_zone{}/temp", id), temperature);
  }
  const double ticks_ = static_cast<double>(::sysconf(_SC_CLK_TCK));
};

TEST_F(Moment, CountsAsForeignWhatNeitherThisProcessNorItsChildrenUsed) {
  MachineReader reader(root());
  write_total(100, 500);
  write_process("self", 10, 5);
  write_process("77", 20, 0);
  MachineReading before = reader.read(77);
  write_total(112, 508, 0.5);
  write_process("self", 11, 5);
  write_process("77", 29, 0);
  MachineReading after = reader.read(77);
  before.seconds = 0;
  after.seconds = 10;
  // 12 s of everybody and 0.5 s of the host, 1 s of this process, 9 s of the child.
  EXPECT_NEAR(moment_between(before, after).foreign_cpu, 0.25, 1e-9);
}

TEST_F(Moment, ChildThatHasEndedIsStillNotForeign) {
  MachineReader reader(root());
  write_total(100, 500);
  write_process("self", 10, 0);
  write_process("77", 0, 0);
  MachineReading before = reader.read(77);
  write_total(108, 500);
  write_process("self", 10, 8);
  MachineReading after = reader.read(0);
  before.seconds = 0;
  after.seconds = 4;
  EXPECT_NEAR(moment_between(before, after).foreign_cpu, 0, 1e-9);
}

TEST_F(Moment, RoundingOfTicksIsNotNegativeTime) {
  MachineReading before, after;
  before.busy_s = 100;
  after.busy_s = 100.98;
  after.own_s = 1;
  after.seconds = 1;
  EXPECT_EQ(moment_between(before, after).foreign_cpu, 0);
}

TEST_F(Moment, TemperatureIsTheProcessorsHottestZone) {
  write_zone(0, "battery", "61000");
  write_zone(1, "cpu-0-0", "45000");
  write_zone(2, "cpu-1-0", "52500");
  write_zone(3, "cpu-broken", "-273000");
  write_zone(4, "soc", "85");  // the battery's charge
  EXPECT_DOUBLE_EQ(MachineReader(root()).read().temperature_c, 52.5);
}

TEST_F(Moment, TemperatureComesFromTheHardwareMonitorElseFromAnyZone) {
  write_zone(0, "acpitz", "27800");
  EXPECT_DOUBLE_EQ(MachineReader(root()).read().temperature_c, 27.8);
  write("sys/class/hwmon/hwmon0/name", "nvme");
  write("sys/class/hwmon/hwmon0/temp1_input", "70000");
  write("sys/class/hwmon/hwmon1/name", "k10temp");
  write("sys/class/hwmon/hwmon1/temp1_input", "48000");
  EXPECT_DOUBLE_EQ(MachineReader(root()).read().temperature_c, 48);
}

TEST_F(Moment, ClockIsTheMeanOverTheCores) {
  write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2000.5\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.5\n");
  EXPECT_DOUBLE_EQ(MachineReader(root()).read().clock_mhz, 2500.5);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3500000");
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "4500000");
  write("sys/devices/system/cpu/cpufreq/boost", "1");
  EXPECT_DOUBLE_EQ(MachineReader(root()).read().clock_mhz, 4000);
}

TEST_F(Moment, ThrottlingIsACountThatRoseOrACoolingThatIsOn) {
  const std::string count = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
  write(count, "7");
  write("sys/class/thermal/cooling_device0/type", "Processor");
  write("sys/class/thermal/cooling_device0/cur_state", "0");
  write("sys/class/thermal/cooling_device1/type", "battery");
  write("sys/class/thermal/cooling_device1/cur_state", "3");
  MachineReader reader(root());
  const MachineReading calm = reader.read();
  EXPECT_FALSE(moment_between(calm, reader.read()).throttled);
  write(count, "8");
  EXPECT_TRUE(moment_between(calm, reader.read()).throttled);
  write(count, "7");
  write("sys/class/thermal/cooling_device0/cur_state", "2");
  EXPECT_TRUE(moment_between(calm, reader.read()).throttled);
}

TEST_F(Moment, HasLoadAndMemory) {
  write("proc/loadavg", "1.25 1.02 0.55 1/87 5242");
  write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   4096 kB");
  MachineReader reader(root());
  const MachineMoment moment = moment_between(reader.read(), reader.read());
  EXPECT_DOUBLE_EQ(moment.load_average, 1.25);
  EXPECT_EQ(moment.free_memory_bytes, 4 * kMiB);
}

TEST_F(Moment, OfAMachineThatTellsNothingIsAllZero) {
  MachineReader reader(root());
  const MachineReading reading = reader.read(77);
  MachineMoment moment = moment_between(reading, reader.read(77));
  moment.seconds = 0;
  EXPECT_EQ(moment, MachineMoment{});
  EXPECT_FALSE(reading.joules);
}

TEST(MomentHere, SeesItsOwnWorkAsItsOwn) {
  MachineReader reader;
  const MachineReading before = reader.read();
  // Until the clock of ticks has seen it.
  volatile double sink = 1;
  MachineReading after = before;
  for (int round = 0; round < 2000 && after.own_s < before.own_s + 0.2; ++round) {
    for (int i = 0; i < 1'000'000; ++i) sink = sink * 1.0000001;
    after = reader.read();
  }
  EXPECT_GE(after.own_s, before.own_s + 0.2);
  EXPECT_GT(after.busy_s, before.busy_s);
}

}  // namespace
}  // namespace kazeia::bench
