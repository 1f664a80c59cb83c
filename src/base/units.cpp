#include "base/units.h"

#include <fmt/format.h>

namespace kazeia {

std::string format_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  if (bytes >= kKiB) return fmt::format("{:.1f} KiB", value / static_cast<double>(kKiB));
  return fmt::format("{} B", bytes);
}

std::string format_duration(double milliseconds) {
  if (milliseconds < 1000.0) return fmt::format("{:.1f} ms", milliseconds);
  const double seconds = milliseconds / 1000.0;
  if (seconds < 120.0) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

std::string format_count(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} G", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.2f} M", value / 1e6);
  if (count >= 10'000) return fmt::format("{:.0f} k", value / 1e3);
  return fmt::format("{}", count);
}

}  // namespace kazeia
