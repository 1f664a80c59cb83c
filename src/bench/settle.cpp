#include "bench/settle.h"

#include <algorithm>
#include <fstream>

#include "base/units.h"
#include "bench/bandwidth.h"

namespace kazeia::bench {

void settle(const std::vector<std::string>& files, std::uint64_t memory_bytes) {
  touch_memory(memory_bytes);
  std::vector<char> buffer(4 * kMiB);
  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
    }
  }
}

std::uint64_t memory_to_settle(std::uint64_t weight_bytes, std::uint64_t available_bytes) {
  return std::min(2 * weight_bytes + kGiB, available_bytes / 2);
}

}  // namespace kazeia::bench
