#include "bench/energy.h"

#include <algorithm>
#include <cmath>

namespace kazeia::bench {
namespace {

constexpr double kMicro = 1e-6;

}  // namespace

EnergyMeter::EnergyMeter(const KernelFiles& files) : files_(files) {
  const std::string rapl = "sys/class/powercap/";
  for (const std::string& name : files_.names(rapl)) {
    // "intel-rapl:0" is a package, "intel-rapl:0:0" a part of it; the platform's own counter contains the packages.
    if (std::count(name.begin(), name.end(), ':') != 1) continue;
    if (!files_.line(rapl + name + "/name").starts_with("package")) continue;
    const std::string path = rapl + name + "/energy_uj";
    const auto value = files_.number(path);  // most systems show it to the superuser only
    if (value) counters_.push_back({path, *value, files_.number(rapl + name + "/max_energy_range_uj").value_or(0)});
  }
  if (!counters_.empty()) return;
  const std::string supplies = "sys/class/power_supply/";
  for (const std::string& name : files_.names(supplies)) {
    if (files_.line(supplies + name + "/type") == "Battery") batteries_.push_back(supplies + name + "/");
  }
  readable_ = battery_watts().has_value();
}

std::optional<double> EnergyMeter::battery_watts() const {
  if (batteries_.empty()) return std::nullopt;
  double watts = 0;
  bool discharging = false;
  for (const std::string& battery : batteries_) {
    const std::string status = files_.line(battery + "status");
    // With the charger's power beside it, what a battery gives or takes says nothing.
    if (status == "Charging") return std::nullopt;
    if (status != "Discharging") continue;
    const auto power = files_.number(battery + "power_now");
    const auto current = files_.number(battery + "current_now");
    const auto voltage = files_.number(battery + "voltage_now");
    // Drivers disagree about the sign of what flows out.
    if (power && *power != 0) {
      watts += std::fabs(*power) * kMicro;
    } else if (current && voltage) {
      watts += std::fabs(*current) * kMicro * *voltage * kMicro;
    } else {
      return std::nullopt;
    }
    discharging = true;
  }
  return discharging ? std::optional(watts) : std::nullopt;
}

std::optional<double> EnergyMeter::joules(double seconds) {
  if (!readable_) return std::nullopt;
  if (!counters_.empty()) {
    for (Counter& counter : counters_) {
      const auto now = files_.number(counter.path);
      if (!now) {
        readable_ = false;
        return std::nullopt;
      }
      const double used = *now - counter.last_uj;
      joules_ += (used >= 0 ? used : used + counter.range_uj) * kMicro;
      counter.last_uj = *now;
    }
    return joules_;
  }
  const auto watts = battery_watts();
  if (!watts) {
    readable_ = false;
    return std::nullopt;
  }
  if (last_watts_) joules_ += (*watts + *last_watts_) / 2 * (seconds - last_seconds_);
  last_watts_ = watts;
  last_seconds_ = seconds;
  return joules_;
}

}  // namespace kazeia::bench
