#include "bench/energy.h"

#include "bench/fake_root.h"

namespace kazeia::bench {
namespace {

class Energy : public FakeRoot {
 protected:
  void write_counter(const std::string& domain, const std::string& name, const std::string& microjoules) const {
    write("sys/class/powercap/" + domain + "/name", name);
    write("sys/class/powercap/" + domain + "/energy_uj", microjoules);
    write("sys/class/powercap/" + domain + "/max_energy_range_uj", "1000000000");
  }
  void write_battery(const std::string& status, const std::string& microamperes) const {
    const std::string battery = "sys/class/power_supply/battery/";
    write(battery + "type", "Battery");
    write(battery + "status", status);
    write(battery + "current_now", microamperes);
    write(battery + "voltage_now", "4000000");
  }
  EnergyMeter meter() const { return EnergyMeter(KernelFiles(root())); }
};

TEST_F(Energy, OfProcessorsIsTheSumOfTheirPackages) {
  write_counter("intel-rapl:0", "package-0", "100000000");
  write_counter("intel-rapl:0:0", "core", "90000000");
  write_counter("intel-rapl:1", "package-1", "0");
  write_counter("intel-rapl:2", "psys", "500000000");
  EnergyMeter energy = meter();
  EXPECT_DOUBLE_EQ(energy.joules(0).value_or(-1), 0);
  write_counter("intel-rapl:0", "package-0", "130000000");
  write_counter("intel-rapl:0:0", "core", "119000000");
  write_counter("intel-rapl:1", "package-1", "12000000");
  write_counter("intel-rapl:2", "psys", "900000000");
  EXPECT_DOUBLE_EQ(energy.joules(10).value_or(-1), 42);
}

TEST_F(Energy, CounterThatBeginsAgainLosesNothing) {
  write_counter("intel-rapl:0", "package-0", "999000000");
  EnergyMeter energy = meter();
  write_counter("intel-rapl:0", "package-0", "4000000");
  EXPECT_DOUBLE_EQ(energy.joules(1).value_or(-1), 5);
}

TEST_F(Energy, OfABatteryIsItsPowerOverTime) {
  write_battery("Discharging", "-1000000");  // 4 W
  EnergyMeter energy = meter();
  EXPECT_DOUBLE_EQ(energy.joules(10).value_or(-1), 0);
  write_battery("Discharging", "-2000000");  // 8 W
  EXPECT_DOUBLE_EQ(energy.joules(12).value_or(-1), 12);
}

TEST_F(Energy, IsNotClaimedOnACharger) {
  write_battery("Discharging", "-1000000");
  EnergyMeter energy = meter();
  EXPECT_TRUE(energy.joules(0));
  write_battery("Charging", "2000000");
  EXPECT_FALSE(energy.joules(1));
  write_battery("Discharging", "-1000000");
  EXPECT_FALSE(energy.joules(2));  // what was used meanwhile is not known
}

TEST_F(Energy, OfAMachineThatDoesNotTellIsNotInvented) {
  EXPECT_FALSE(meter().joules(1));
  write_battery("Full", "0");
  EXPECT_FALSE(meter().joules(1));
  write("sys/class/powercap/intel-rapl:0/name", "package-0");  // its counter is for the superuser
  EXPECT_FALSE(meter().joules(1));
}

}  // namespace
}  // namespace kazeia::bench
