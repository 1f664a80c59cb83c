#include "tiles/kernels.h"

#include <cstdlib>
#include <vector>

#include "base/log.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1UL << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1UL << 13)
#endif
#endif

namespace kazeia::tiles {
namespace {

std::vector<const KernelSet*> detect() {
  std::vector<const KernelSet*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")) {
    sets.push_back(&avx512_kernels());
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    sets.push_back(&avx2_kernels());
  }
#elif defined(__aarch64__)
  const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) sets.push_back(&i8mm_kernels());
  if (dotprod) sets.push_back(&dotprod_kernels());
#endif
  sets.push_back(&scalar_kernels());
  return sets;
}

}  // namespace

std::span<const KernelSet* const> available_kernels() {
  static const std::vector<const KernelSet*> sets = detect();
  return sets;
}

const KernelSet& kernels() {
  static const KernelSet& chosen = []() -> const KernelSet& {
    const char* wanted = std::getenv("KAZEIA_KERNELS");
    if (wanted == nullptr || *wanted == '\0') return *available_kernels().front();
    for (const KernelSet* set : available_kernels()) {
      if (set->name == wanted) return *set;
    }
    log(LogLevel::kWarning, std::string("KAZEIA_KERNELS names '") + wanted +
                                "', which this machine cannot run; using " +
                                std::string(available_kernels().front()->name));
    return *available_kernels().front();
  }();
  return chosen;
}

}  // namespace kazeia::tiles
