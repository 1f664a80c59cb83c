#include "attention/attention.h"

#include <algorithm>
#include <vector>

#include "tiles/kernels.h"

namespace kazeia::attention {
namespace {

constexpr std::int64_t kLeastChunk = 32;
constexpr std::int64_t kEnoughChunks = 32;  // for eight threads to finish together
constexpr std::int64_t kEnoughItems = 32;   // likewise
constexpr std::int64_t kLineFloats = 16;    // of a cache line

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
         heads % kv_heads == 0 && rows > 0 && positions > 0 && (!is_wide() || heads / kv_heads <= kMostPanels * kPanel);
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

std::int64_t Task::block_rows() const {
  const std::int64_t group = heads / kv_heads;
  const auto items_of = [&](std::int64_t tokens) { return kv_heads * ((rows + tokens - 1) / tokens); };
  const std::int64_t least = std::max<std::int64_t>(1, kPanel / group);
  std::int64_t tokens = std::max<std::int64_t>(1, kMostPanels * kPanel / group);
  while (tokens > least && items_of(tokens) < kEnoughItems) tokens = std::max(least, tokens / 2);
  return tokens;
}

std::int64_t Task::blocks() const {
  const std::int64_t tokens = block_rows();
  return (rows + tokens - 1) / tokens;
}

// Rows whose distance is a power of two would share a few sets of the L1 cache.
std::int64_t Task::wide_row_floats() const {
  return dimension + kLineFloats;
}

std::size_t Task::wide_scratch_bytes() const {
  const std::int64_t queries = kMostPanels * kPanel;
  // Queries and results, scores and masks, largest scores and sums, rows: each a multiple of a cache line.
  const std::int64_t floats = queries * (2 * dimension + 2 * kBlock + 2) + kBlock * wide_row_floats();
  return static_cast<std::size_t>(floats) * sizeof(float);
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
