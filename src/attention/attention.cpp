#include "attention/attention.h"

#include <algorithm>
#include <vector>

#include "tiles/kernels.h"

namespace kazeia::attention {
namespace {

constexpr std::int64_t kLeastChunk = 32;
constexpr std::int64_t kEnoughChunks = 32;  // for eight threads to finish together

const KernelSet& companion(const tiles::KernelSet& set) {
#if defined(__x86_64__)
  // AVX-512 machines too: no other kernel has been measured on one (docs/decisions/0020).
  if (set.name.starts_with("avx")) return avx2_kernels();
#elif defined(__aarch64__)
  if (set.name.starts_with("neon")) return neon_kernels();
#endif
  return set.name == "scalar" ? scalar_kernels() : *available_kernels().front();
}

std::vector<const KernelSet*> detect() {
  std::vector<const KernelSet*> sets;
  for (const tiles::KernelSet* set : tiles::available_kernels()) {
    const KernelSet* ours = &companion(*set);
    if (sets.empty() || sets.back() != ours) sets.push_back(ours);
  }
  return sets;
}

}  // namespace

bool Task::is_valid() const {
  return dimension > 0 && dimension <= kMostDimension && dimension % kDimensionStep == 0 && kv_heads > 0 && heads > 0 &&
         heads % kv_heads == 0 && rows > 0 && rows <= kMostRows && positions > 0;
}

std::int64_t Task::chunk_positions() const {
  std::int64_t chunk = kLeastChunk;
  while (chunk < kMostChunk && positions > chunk * kEnoughChunks) chunk *= 2;
  return chunk;
}

std::int64_t Task::chunks() const {
  const std::int64_t chunk = chunk_positions();
  return (positions + chunk - 1) / chunk;
}

std::int64_t Task::kv_heads_at_once() const {
  const std::int64_t queries = rows * (heads / kv_heads);
  std::int64_t many = kv_heads;
  while (many > 1 && (kv_heads % many != 0 || many * queries > kQueriesAtOnce)) --many;
  return many;
}

std::size_t Task::partial_floats() const {
  const auto queries = static_cast<std::size_t>(rows * (heads / kv_heads));
  return (queries * static_cast<std::size_t>(dimension + 2) + 15) / 16 * 16;
}

std::size_t Task::scratch_bytes() const {
  return static_cast<std::size_t>(chunks() * kv_heads) * partial_floats() * sizeof(float);
}

std::span<const KernelSet* const> available_kernels() {
  static const std::vector<const KernelSet*> sets = detect();
  return sets;
}

const KernelSet& kernels() {
  static const KernelSet& chosen = companion(tiles::kernels());
  return chosen;
}

}  // namespace kazeia::attention
