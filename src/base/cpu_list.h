// Sets of logical CPUs, as the kernel numbers and writes them: "0-3,8".
#pragma once

#include <sched.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kazeia {

// Ascending, each once, below CPU_SETSIZE. kUsage.
Result<std::vector<int>> parse_cpu_list(std::string_view text);
std::string cpu_list_text(std::span<const int> cpus);  // ascending in, "0-3,8" out

// While it lives, this thread runs on these CPUs only, and so do the threads that it starts, for as long as they live.
// None given, or none that the system allows: everything stays as it is.
class [[nodiscard]] OnCpus {
 public:
  explicit OnCpus(std::span<const int> cpus);
  ~OnCpus();
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

}  // namespace kazeia
