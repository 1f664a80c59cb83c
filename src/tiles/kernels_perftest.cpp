// How fast the kernels are, apart from any model: `make bench-kernels`.
//
// The weights are copies of one matrix that fill 1 GiB and are walked in order, so that every byte comes from memory,
// as when a model's layers follow each other. Every thread takes its share of each matrix's row tiles. `plain_read`
// reads the same memory in the same shares and does nothing else: what gemv can reach at best. Times are wall time.

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "bench/bandwidth.h"
#include "tiles/activation.h"
#include "tiles/kernels.h"
#include "tiles/layout.h"
#include "tiles/pack.h"

namespace kazeia::tiles {
namespace {

using benchmark::Counter;
using benchmark::State;

constexpr std::size_t kWorkingSetBytes = std::size_t{1} << 30;

// Memory on huge pages where the system has them, as weights lie in it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage + kPage) {
    mapping_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    data_ = reinterpret_cast<std::uint8_t*>((address + kPage - 1) / kPage * kPage);
    (void)::madvise(data_, bytes_ - kPage, MADV_HUGEPAGE);
  }
  ~Memory() { ::munmap(mapping_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  std::size_t bytes_;
  void* mapping_ = nullptr;
  std::uint8_t* data_ = nullptr;
};

// Random bytes of which every pair is an f16 between 2^-7 and 2: nothing becomes an infinity or a denormal, which would
// be measured instead of the kernel.
void fill_with_blocks(std::span<std::uint8_t> bytes) {
  std::mt19937_64 random(1);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>((random() & 0x9f) | 0x20);
}

// Copies of one matrix, in tiles and in blocks. One at a time exists: the next shape takes its memory.
struct WorkingSet {
  explicit WorkingSet(const Shape& of)
      : shape(of),
        copies(kWorkingSetBytes / std::min(of.bytes(), of.block_bytes()) + 1),
        tiles(copies * of.bytes()),
        blocks(copies * of.block_bytes()) {
    fill_with_blocks({blocks.data(), shape.block_bytes()});
    pack(shape, blocks.data(), tiles.data(), 1);
    for (std::size_t i = 1; i < copies; ++i) {
      std::memcpy(tiles.data() + i * shape.bytes(), tiles.data(), shape.bytes());
      std::memcpy(blocks.data() + i * shape.block_bytes(), blocks.data(), shape.block_bytes());
    }
  }

  // Called by one thread while the others wait for the measurement to start.
  static void prepare(const Shape& shape) {
    if (current && current->shape.type == shape.type && current->shape.rows == shape.rows &&
        current->shape.columns == shape.columns) {
      return;
    }
    current.reset();
    current = std::make_unique<WorkingSet>(shape);
  }

  Shape shape;
  std::size_t copies;
  Memory tiles;
  Memory blocks;
  static std::unique_ptr<WorkingSet> current;
};
std::unique_ptr<WorkingSet> WorkingSet::current;

// What the threads of one benchmark share, made by thread 0 before the start.
struct Product {
  Product(const KernelSet& kernels, const Shape& shape, std::int64_t tokens)
      : activation_memory(Activations::bytes(tokens, shape.columns)),
        activations(Activations::on(activation_memory.data(), tokens, shape.columns)),
        out(static_cast<std::size_t>(tokens * shape.row_tiles() * kTileRows)) {
    std::mt19937_64 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(shape.columns));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (float& value : x) value = normal(random);
      kernels.quantise(x.data(), shape.columns, column_order(shape.type), activations, t);
    }
  }
  Memory activation_memory;
  Activations activations;
  std::vector<float> out;
  static std::unique_ptr<Product> current;
};
std::unique_ptr<Product> Product::current;

// Walks the copies for ever: `work(copy, first, last)` with the row tiles of this thread.
template <typename Work>
void walk(State& state, const Shape& shape, Work&& work) {
  const std::int64_t first = shape.row_tiles() * state.thread_index() / state.threads();
  const std::int64_t last = shape.row_tiles() * (state.thread_index() + 1) / state.threads();
  // An estimate and the measurement follow each other; neither may start on what the one before left in a cache.
  static std::size_t start = 0;
  std::size_t copy = start;
  for (auto _ : state) {
    copy = (copy + 1) % WorkingSet::current->copies;
    work(copy, first, last);
  }
  if (state.thread_index() == 0) start = copy;  // every thread has left the loop, none has begun the next run
  // As SetBytesProcessed() does, but in GB of 1e9 bytes.
  const std::int64_t bytes = state.iterations() * (last - first) * static_cast<std::int64_t>(shape.row_tile_bytes());
  state.counters["bytes_per_second"] = Counter(static_cast<double>(bytes), Counter::kIsRate, Counter::kIs1000);
}

void plain_read(State& state, const Shape& shape) {
  if (state.thread_index() == 0) WorkingSet::prepare(shape);
  walk(state, shape, [&](std::size_t copy, std::int64_t first, std::int64_t last) {
    const std::uint8_t* tiles = WorkingSet::current->tiles.data() + copy * shape.bytes();
    const std::size_t row = shape.row_tile_bytes();
    benchmark::DoNotOptimize(
        bench::read_every_byte(reinterpret_cast<const std::byte*>(tiles) + static_cast<std::size_t>(first) * row,
                               static_cast<std::size_t>(last - first) * row));
  });
}

void gemv(State& state, const KernelSet& kernels, const Shape& shape) {
  if (state.thread_index() == 0) {
    WorkingSet::prepare(shape);
    Product::current = std::make_unique<Product>(kernels, shape, 1);
  }
  walk(state, shape, [&](std::size_t copy, std::int64_t first, std::int64_t last) {
    const std::uint8_t* tiles = WorkingSet::current->tiles.data() + copy * shape.bytes();
    Product& product = *Product::current;
    for (std::int64_t i = first; i < last; ++i) {
      kernels.gemv(shape.type, tiles + static_cast<std::size_t>(i) * shape.row_tile_bytes(), product.activations, 0,
                   product.out.data() + i * kTileRows);
    }
  });
}

void gemm(State& state, const KernelSet& kernels, const Shape& shape, std::int64_t tokens) {
  if (state.thread_index() == 0) {
    WorkingSet::prepare(shape);
    Product::current = std::make_unique<Product>(kernels, shape, tokens);
  }
  const Memory panel(kernels.panel_bytes(shape.type, shape.column_tiles()));
  const std::int64_t out_stride = shape.row_tiles() * kTileRows;
  walk(state, shape, [&](std::size_t copy, std::int64_t first, std::int64_t last) {
    const std::uint8_t* tiles = WorkingSet::current->tiles.data() + copy * shape.bytes();
    Product& product = *Product::current;
    for (std::int64_t i = first; i < last; ++i) {
      kernels.expand(shape.type, tiles + static_cast<std::size_t>(i) * shape.row_tile_bytes(), shape.column_tiles(),
                     panel.data());
      kernels.gemm(shape.type, panel.data(), product.activations, 0, tokens, product.out.data() + i * kTileRows,
                   out_stride);
    }
  });
  // Each thread counts its share; the library adds them up.
  const double row_tiles = static_cast<double>(shape.row_tiles()) / state.threads();
  state.counters["GOP/s"] = Counter(2e-9 * row_tiles * kTileRows * static_cast<double>(shape.columns * tokens) *
                                        static_cast<double>(state.iterations()),
                                    Counter::kIsRate);
}

// GB/s of tiles written. The instruction set is pack()'s own choice.
void pack_tiles(State& state, const Shape& shape) {
  if (state.thread_index() == 0) WorkingSet::prepare(shape);
  walk(state, shape, [&](std::size_t copy, std::int64_t first, std::int64_t last) {
    WorkingSet& set = *WorkingSet::current;
    pack(shape, set.blocks.data() + copy * shape.block_bytes(), set.tiles.data() + copy * shape.bytes(), first, last);
  });
}

template <typename Run>
void add(const std::string& name, Run run) {
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMillisecond);
  registered->Threads(1);
  if (all > 1) registered->Threads(all);
}

// By matrix, so that each working set is made once.
void add_all() {
  struct Size {
    std::int64_t rows, columns;
  };
  constexpr Size kSizes[] = {{2560, 2560}, {9728, 2560}, {2560, 9728}};
  for (const Layout& layout : layouts()) {
    for (const Size size : kSizes) {
      const Shape shape{layout.type, size.rows, size.columns};
      const std::string matrix = fmt::format("{}/{}x{}", layout.name, size.rows, size.columns);
      add("plain_read/" + matrix, [shape](State& state) { plain_read(state, shape); });
      add("pack/" + matrix, [shape](State& state) { pack_tiles(state, shape); });
      for (const KernelSet* kernels : available_kernels()) {
        add(fmt::format("gemv/{}/{}", matrix, kernels->name),
            [shape, kernels](State& state) { gemv(state, *kernels, shape); });
        for (const std::int64_t tokens : {128, 512}) {
          // The portable code needs a minute for the larger products, and its speed does not depend on them.
          if (kernels->name == "scalar" && (tokens > 128 || size.rows * size.columns > 2560 * 2560)) continue;
          add(fmt::format("gemm{}/{}/{}", tokens, matrix, kernels->name),
              [shape, kernels, tokens](State& state) { gemm(state, *kernels, shape, tokens); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace kazeia::tiles

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  kazeia::tiles::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
