#include "bench/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace kazeia::bench {
namespace {

// As wide as every processor has it: wider ones are split by the compiler, and the sums then no longer fit its
// registers, which cost a quarter of the speed that is to be measured.
using Vector = std::uint64_t __attribute__((vector_size(16)));
constexpr std::size_t kSums = 8;

}  // namespace

std::uint64_t read_every_byte(const std::byte* begin, std::size_t bytes) {
  Vector sums[kSums] = {};
  for (std::size_t i = 0; i + sizeof sums <= bytes; i += sizeof sums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      Vector v;
      std::memcpy(&v, begin + i + k * sizeof(Vector), sizeof v);
      sums[k] ^= v;
    }
  }
  std::uint64_t sum = 0;
  for (const Vector& part : sums) sum ^= part[0] ^ part[1];
  return sum;
}

double plain_read_gbps(int threads, std::uint64_t bytes, int passes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  bytes = bytes / kPiece * kPiece;
  void* mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  auto* base =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(mapping) + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  (void)madvise(base, bytes, MADV_HUGEPAGE);
#endif
  std::memset(base, 1, bytes);

  std::atomic<std::uint64_t> sink{0};
  std::atomic<std::uint64_t> next{0};
  double best_ms = 0;
  Stopwatch watch;
  // Every pass starts for all threads at once and ends with the last of them.
  bool starting = true;
  std::barrier gate(threads, [&]() noexcept {
    if (starting) {
      next = 0;
      watch.restart();
    } else {
      const double ms = watch.elapsed_ms();
      best_ms = best_ms == 0 ? ms : std::min(best_ms, ms);
    }
    starting = !starting;
  });
  const auto work = [&] {
    for (int pass = 0; pass < passes; ++pass) {
      gate.arrive_and_wait();
      std::uint64_t sum = 0;
      for (std::uint64_t at = next.fetch_add(kPiece); at < bytes; at = next.fetch_add(kPiece)) {
        sum ^= read_every_byte(base + at, kPiece);
      }
      sink ^= sum;
      gate.arrive_and_wait();
    }
  };
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  for (std::thread& member : team) member.join();
  munmap(mapping, bytes + kHugePage);
  return best_ms > 0 ? static_cast<double>(bytes) / (best_ms * 1e6) : 0;
}

void touch_memory(std::uint64_t bytes) {
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return;
  std::memset(mapping, 1, bytes);
  munmap(mapping, bytes);
}

}  // namespace kazeia::bench
