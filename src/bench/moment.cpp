#include "bench/moment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace kazeia::bench {
namespace {

const std::string kCpus = "sys/devices/system/cpu/";
const std::string kThermal = "sys/class/thermal/";
const std::string kHwmon = "sys/class/hwmon/";

bool is_cpu_folder(std::string_view name) {
  return name.size() > 3 && name.starts_with("cpu") && std::isdigit(static_cast<unsigned char>(name[3])) != 0;
}

bool is_of_the_processor(std::string_view type) {
  // Not every "soc": on phones that zone is the battery's state of charge.
  for (const char* known : {"cpu", "x86_pkg_temp", "soc-thermal", "soc_thermal", "coretemp", "k10temp", "zenpower"}) {
    if (type.starts_with(known)) return true;
  }
  return false;
}

bool cools_the_processor(std::string_view type) {
  return type == "Processor" || type.starts_with("cpu") || type.starts_with("thermal-cpufreq");
}

// Zones of the processor, else its hardware monitor, else every zone there is.
std::vector<std::string> temperature_files(const KernelFiles& files) {
  std::vector<std::string> preferred, others;
  for (const std::string& name : files.names(kThermal)) {
    if (!name.starts_with("thermal_zone")) continue;
    const std::string folder = kThermal + name + "/";
    (is_of_the_processor(files.line(folder + "type")) ? preferred : others).push_back(folder + "temp");
  }
  if (!preferred.empty()) return preferred;
  for (const std::string& chip : files.names(kHwmon)) {
    const std::string folder = kHwmon + chip + "/";
    if (!is_of_the_processor(files.line(folder + "name"))) continue;
    for (const std::string& name : files.names(folder)) {
      if (name.starts_with("temp") && name.ends_with("_input")) preferred.push_back(folder + name);
    }
  }
  return preferred.empty() ? others : preferred;
}

double highest_celsius(const KernelFiles& files, const std::vector<std::string>& paths) {
  double highest = 0;
  for (const std::string& path : paths) {
    const double value = files.number(path).value_or(0);
    const double celsius = value > 200 ? value / 1000 : value;  // a few drivers count in whole degrees
    if (celsius < 150) highest = std::max(highest, celsius);    // an unused sensor shows nonsense
  }
  return highest;
}

double mean_mhz(const KernelFiles& files, const std::vector<std::string>& paths) {
  double sum = 0;
  int count = 0;
  for (const std::string& path : paths) {
    if (const auto khz = files.number(path)) {
      sum += *khz / 1000;
      ++count;
    }
  }
  if (count > 0) return sum / count;
  std::istringstream rows(files.text("proc/cpuinfo"));
  for (std::string row; std::getline(rows, row);) {
    const std::size_t colon = row.find(':');
    if (!row.starts_with("cpu MHz") || colon == std::string::npos) continue;
    sum += std::strtod(row.c_str() + colon + 1, nullptr);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

std::uint64_t available_memory(const KernelFiles& files) {
  std::istringstream rows(files.text("proc/meminfo"));
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("MemAvailable:")) return std::strtoull(row.c_str() + 13, nullptr, 10) * kKiB;
  }
  return 0;
}

}  // namespace

MachineReader::MachineReader(std::string root)
    : files_(std::move(root)),
      energy_(files_),
      ticks_per_second_(static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK)))),
      temperatures_(temperature_files(files_)) {
  for (const std::string& name : files_.names(kCpus)) {
    if (!is_cpu_folder(name)) continue;
    clocks_.push_back(kCpus + name + "/cpufreq/scaling_cur_freq");
    for (const char* count : {"core_throttle_count", "package_throttle_count"}) {
      throttle_counts_.push_back(kCpus + name + "/thermal_throttle/" + count);
    }
  }
  const auto cannot_be_read = [this](const std::string& path) { return !files_.number(path); };
  std::erase_if(clocks_, cannot_be_read);
  std::erase_if(throttle_counts_, cannot_be_read);
  for (const std::string& name : files_.names(kThermal)) {
    const std::string folder = kThermal + name + "/";
    if (name.starts_with("cooling_device") && cools_the_processor(files_.line(folder + "type"))) {
      cooling_states_.push_back(folder + "cur_state");
    }
  }
}

double MachineReader::cpu_seconds(const std::string& path, bool with_children) const {
  const std::string text = files_.text(path);
  // The name before it may contain anything, spaces and brackets included.
  const std::size_t behind_name = text.rfind(')');
  if (behind_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(behind_name + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0, child_user = 0, child_system = 0;
  if (!(fields >> user >> system >> child_user >> child_system)) return 0;
  return (user + system + (with_children ? child_user + child_system : 0)) / ticks_per_second_;
}

MachineReading MachineReader::read(int child) {
  MachineReading reading;
  // The processes first: what they use between the two reads then counts as others' and not as negative time of others.
  reading.own_s = cpu_seconds("proc/self/stat", /*with_children=*/true);
  if (child > 0) reading.own_s += cpu_seconds("proc/" + std::to_string(child) + "/stat", /*with_children=*/true);
  std::istringstream stat(files_.text("proc/stat"));
  std::string label;
  std::array<double, 8> ticks{};  // user nice system idle iowait irq softirq steal
  stat >> label;
  for (double& value : ticks) stat >> value;
  if (label == "cpu") {
    reading.busy_s = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / ticks_per_second_;
  }
  reading.seconds = since_start_.elapsed_ms() / 1000;
  reading.load_average = files_.number("proc/loadavg").value_or(0);
  reading.temperature_c = highest_celsius(files_, temperatures_);
  reading.clock_mhz = mean_mhz(files_, clocks_);
  reading.free_memory_bytes = available_memory(files_);
  for (const std::string& path : throttle_counts_) {
    reading.throttle_events += static_cast<std::uint64_t>(std::max(0.0, files_.number(path).value_or(0)));
  }
  for (const std::string& path : cooling_states_) reading.cooling |= files_.number(path).value_or(0) > 0;
  reading.joules = energy_.joules(reading.seconds);
  return reading;
}

MachineMoment moment_between(const MachineReading& before, const MachineReading& after) {
  MachineMoment moment;
  moment.seconds = after.seconds;
  moment.load_average = after.load_average;
  moment.temperature_c = after.temperature_c;
  moment.clock_mhz = after.clock_mhz;
  moment.free_memory_bytes = after.free_memory_bytes;
  moment.throttled = after.cooling || after.throttle_events > before.throttle_events;
  const double elapsed = after.seconds - before.seconds;
  const double foreign = (after.busy_s - before.busy_s) - (after.own_s - before.own_s);
  // The kernel counts in ticks: a little less than nothing is nothing.
  if (elapsed > 0 && after.busy_s > 0) moment.foreign_cpu = std::max(0.0, foreign / elapsed);
  return moment;
}

}  // namespace kazeia::bench
