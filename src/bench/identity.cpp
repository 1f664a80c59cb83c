#include "bench/identity.h"

#include <sys/utsname.h>

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia::bench {
namespace {

// FNV-1a: the id is for telling machines apart, and must never change.
std::uint32_t short_hash(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
  return hash;
}

// "Linux 6.1" of "Linux 6.1.0-18-amd64": updates do not make another machine.
std::string without_patch_level(const std::string& kernel) {
  const std::size_t major = kernel.find('.');
  if (major == std::string::npos) return kernel;
  return kernel.substr(0, kernel.find_first_not_of("0123456789", major + 1));
}

}  // namespace

MachineIdentity machine_identity(const MachineFacts& facts, const std::string& architecture) {
  // What the kernel keeps for itself differs between versions; the size of the memory modules does not.
  const std::uint64_t gibibytes = (facts.total_memory_bytes + kGiB - 1) / kGiB;
  const int cores = facts.allowed_cores();
  MachineIdentity identity;
  const std::string cpu = facts.cpu_model.empty() ? "unknown processor" : facts.cpu_model;
  identity.name = fmt::format("{}, {} core{}, {} GiB", cpu, cores, cores == 1 ? "" : "s", gibibytes);
  identity.system = without_patch_level(facts.kernel);
  if (!architecture.empty()) identity.system += (identity.system.empty() ? "" : " ") + architecture;
  identity.id = fmt::format("{:08x}", short_hash(fmt::format("{}|{}|{}|{}", cpu, cores, gibibytes, architecture)));
  return identity;
}

MachineIdentity machine_identity() {
  utsname names{};
  return machine_identity(read_machine(), ::uname(&names) == 0 ? names.machine : "");
}

const char* compiler() {
  return KAZEIA_COMPILER;
}

const char* compiler_flags() {
  return KAZEIA_COMPILER_FLAGS;
}

}  // namespace kazeia::bench
