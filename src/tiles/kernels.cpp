#include "tiles/kernels.h"

#include <cstdlib>
#include <vector>

#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
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

#if defined(__x86_64__)
// Clang's __builtin_cpu_supports does not know this one. Leaf 1, ECX bit 29 (Intel and AMD manuals, CPUID).
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}
#endif

std::vector<const KernelSet*> detect() {
  std::vector<const KernelSet*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")) {
    sets.push_back(&avx512_kernels());
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
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
