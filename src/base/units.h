// Sizes, rates and durations as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace kazeia {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

std::string format_bytes(std::uint64_t bytes);     // "2.36 GiB", "512 B"
std::string format_duration(double milliseconds);  // "0.8 ms", "12.3 s", "4 min 10 s"
std::string format_count(std::uint64_t count);     // "3.95 M", "248 k"

}  // namespace kazeia
