// Every instruction set that this machine can run, against float64.
//
// The error of a row is measured against its largest expected element.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attention/attention.h"
#include "attention/reference.h"
#include "tiles/half.h"

namespace kazeia::attention {
namespace {

using Random = std::mt19937_64;

constexpr double kTolerance = 1e-6;
constexpr double kWideTolerance = 2e-6;       // of a score every product is added to the same lane, not to one of eight
constexpr std::int64_t kEnoughPairs = 25000;  // of a query token and a position: float64 is slow, and so is qemu
constexpr std::uint16_t kHidden = 0xfc00;     // -inf
constexpr std::uint16_t kPoison = 0x7e00;     // a NaN
constexpr float kUntouched = -12345.0f;

enum class Mask { kNone, kCausal, kHoles, kWindow, kWithBias };

struct Shape {
  std::int64_t heads = 8, kv_heads = 2, dimension = 256, positions = 300, rows = 1;
  Mask mask = Mask::kNone;
};

// Query tokens at the end of a cache, or in the middle of one whose rest is masked.
class Problem {
 public:
  Problem(const Shape& shape, std::uint64_t seed) : random_(seed) {
    const std::int64_t kv_row = shape.kv_heads * shape.dimension, q_row = shape.heads * shape.dimension;
    k_ = halves(shape.positions * kv_row);
    v_ = halves(shape.positions * kv_row);
    std::normal_distribution<float> normal;
    q_.resize(static_cast<std::size_t>(shape.rows * q_row));
    for (float& x : q_) x = normal(random_);
    out_.assign(q_.size() + 1, kUntouched);
    task.dimension = shape.dimension;
    task.heads = shape.heads;
    task.kv_heads = shape.kv_heads;
    task.rows = shape.rows;
    task.positions = shape.positions;
    task.scale = 1 / std::sqrt(static_cast<float>(shape.dimension));
    task.q = reinterpret_cast<const std::byte*>(q_.data());
    task.q_row_stride = static_cast<std::size_t>(q_row) * sizeof(float);
    task.q_head_stride = static_cast<std::size_t>(shape.dimension) * sizeof(float);
    task.k = reinterpret_cast<const std::byte*>(k_.data());
    task.v = reinterpret_cast<const std::byte*>(v_.data());
    task.k_position_stride = task.v_position_stride = static_cast<std::size_t>(kv_row) * 2;
    task.k_head_stride = task.v_head_stride = static_cast<std::size_t>(shape.dimension) * 2;
    task.out = reinterpret_cast<std::byte*>(out_.data());
    task.out_row_stride = task.q_row_stride;
    task.out_head_stride = task.q_head_stride;
    if (shape.mask != Mask::kNone) make_mask(shape);
  }

  Task task;

  std::vector<float> run(const KernelSet& set, int threads) {
    std::fill(out_.begin(), out_.end(), kUntouched);
    task.is_wide() ? run_wide(set, threads) : run_few(set, threads);
    EXPECT_EQ(out_.back(), kUntouched) << "written beyond the result";
    return {out_.begin(), out_.end() - 1};
  }
  std::vector<float>& q() { return q_; }
  std::vector<std::uint16_t>& mask() { return mask_; }
  // What nobody may read.
  void poison_hidden_positions() {
    for (std::int64_t p = 0; p < task.positions; ++p) {
      bool seen = false;
      for (std::int64_t r = 0; r < task.rows; ++r) seen = seen || mask_[index(r, p)] != kHidden;
      const std::int64_t row = task.kv_heads * task.dimension;
      if (seen) continue;
      std::fill_n(k_.begin() + p * row, row, kPoison);
      std::fill_n(v_.begin() + p * row, row, kPoison);
    }
  }

 private:
  using Scratch = std::unique_ptr<float, decltype(&std::free)>;
  static Scratch scratch(std::size_t bytes) {
    bytes = std::max<std::size_t>(64, bytes);
    Scratch floats(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
    std::fill_n(floats.get(), bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    return floats;
  }
  // work() on so many threads at once.
  template <typename Work>
  static void on_threads(int threads, Work&& work) {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }
  void run_wide(const KernelSet& set, int threads) {
    std::atomic<std::int64_t> next{0};
    on_threads(threads, [&] {
      const Scratch own = scratch(task.wide_scratch_bytes());
      for (std::int64_t item = next++; item < task.wide_items(); item = next++) set.attend_wide(task, item, own.get());
    });
  }
  void run_few(const KernelSet& set, int threads) {
    const Scratch partials = scratch(task.scratch_bytes());
    std::atomic<std::int64_t> next{0};
    on_threads(threads, [&] {
      for (std::int64_t item = next++; item < task.items(); item = next++) set.attend(task, item, partials.get());
    });
    for (std::int64_t i = 0; i < task.results(); ++i) set.reduce(task, i, partials.get());
  }
  std::vector<std::uint16_t> halves(std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    for (std::uint16_t& x : values) x = tiles::float_to_half(normal(random_));
    return values;
  }
  std::size_t index(std::int64_t row, std::int64_t position) const {
    return static_cast<std::size_t>(row * task.positions + position);
  }
  void make_mask(const Shape& shape) {
    mask_.assign(static_cast<std::size_t>(shape.rows * shape.positions), 0);
    const std::int64_t end = std::max<std::int64_t>(1, shape.positions * 3 / 4 - shape.rows);  // of the first token
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t p = 0; p < shape.positions; ++p) {
        const bool hole = shape.mask == Mask::kHoles && random_() % 3 == 0;
        const bool before_window = shape.mask == Mask::kWindow && p + 100 < end + r;
        if (p >= end + r || hole || before_window) mask_[index(r, p)] = kHidden;
        if (shape.mask == Mask::kWithBias && mask_[index(r, p)] == 0) {
          mask_[index(r, p)] = tiles::float_to_half(static_cast<float>(random_() % 64) / -16);
        }
      }
    }
    task.mask = reinterpret_cast<const std::byte*>(mask_.data());
    task.mask_row_stride = static_cast<std::size_t>(shape.positions) * 2;
  }

  Random random_;
  std::vector<std::uint16_t> k_, v_, mask_;
  std::vector<float> q_, out_;
};

void expect_reference(const std::vector<float>& got, const Task& task) {
  const std::vector<double> expected = reference(task);
  ASSERT_EQ(got.size(), expected.size());
  for (std::int64_t i = 0; i < task.results(); ++i) {
    double largest = 0, error = 0;
    for (std::int64_t d = 0; d < task.dimension; ++d) {
      const auto at = static_cast<std::size_t>(i * task.dimension + d);
      ASSERT_TRUE(std::isfinite(got[at])) << "result " << i << ", dimension " << d;
      largest = std::max(largest, std::fabs(expected[at]));
      error = std::max(error, std::fabs(static_cast<double>(got[at]) - expected[at]));
    }
    ASSERT_LE(error, (task.is_wide() ? kWideTolerance : kTolerance) * largest)
        << "row " << i / task.heads << ", head " << i % task.heads;
  }
}

class Attention : public testing::TestWithParam<const KernelSet*> {};

TEST_P(Attention, IsThatOfFloat64ForAllShapesOfHeads) {
  for (const std::int64_t kv_heads : {1, 2, 4, 8}) {
    for (const std::int64_t group : {1, 2, 3, 4, 7, 8, 16, 32}) {
      if (kv_heads * group > 32) continue;
      for (const std::int64_t dimension : {64, 128, 256}) {
        for (const std::int64_t rows : {1, 19}) {
          const Shape shape{kv_heads * group, kv_heads, dimension, 77, rows, Mask::kCausal};
          SCOPED_TRACE(testing::Message() << shape.heads << " on " << kv_heads << " of " << dimension);
          Problem problem(shape, 1);
          ASSERT_NO_FATAL_FAILURE(expect_reference(problem.run(*GetParam(), 1), problem.task));
        }
      }
    }
  }
}

TEST_P(Attention, IsThatOfFloat64AtAllLengths) {
  for (const std::int64_t positions :
       {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 255, 256, 257, 1000, 2048, 2049, 4096, 5000}) {
    for (const std::int64_t rows : {1, 3, 9, 30}) {
      if (rows * positions > kEnoughPairs) continue;
      SCOPED_TRACE(testing::Message() << positions << " positions, " << rows << " rows");
      Problem problem({4, 1, 128, positions, rows, Mask::kNone}, 2);
      ASSERT_NO_FATAL_FAILURE(expect_reference(problem.run(*GetParam(), 1), problem.task));
    }
  }
}

TEST_P(Attention, IsThatOfFloat64UnderEveryMaskAndReadsNothingThatIsHidden) {
  for (const Mask mask : {Mask::kCausal, Mask::kHoles, Mask::kWindow, Mask::kWithBias}) {
    for (const std::int64_t rows : {1, 2, 5, 8, 9, 24, 61}) {
      for (const std::int64_t positions : {9, 200, 700, 3000}) {
        if (rows * positions > kEnoughPairs) continue;
        SCOPED_TRACE(testing::Message() << "mask " << static_cast<int>(mask) << ", " << rows << " rows, " << positions);
        Problem problem({8, 2, 64, positions, rows, mask}, 3);
        problem.poison_hidden_positions();
        ASSERT_NO_FATAL_FAILURE(expect_reference(problem.run(*GetParam(), 1), problem.task));
      }
    }
  }
}

TEST_P(Attention, OfAHeadOfAnyMultipleOf32Is) {
  for (std::int64_t dimension = kDimensionStep; dimension <= kMostDimension; dimension += kDimensionStep) {
    for (const std::int64_t rows : {2, 11}) {
      SCOPED_TRACE(testing::Message() << dimension << ", " << rows << " rows");
      Problem problem({7, 1, dimension, 100, rows, Mask::kCausal}, 4);
      ASSERT_NO_FATAL_FAILURE(expect_reference(problem.run(*GetParam(), 1), problem.task));
    }
  }
}

TEST_P(Attention, IsZeroInARowThatIsMaskedEverywhere) {
  for (const std::int64_t rows : {1, 3, 20}) {
    Problem problem({8, 2, 128, 600, rows, Mask::kCausal}, 5);
    std::fill_n(problem.mask().begin(), 600, kHidden);
    problem.poison_hidden_positions();
    const std::vector<float> out = problem.run(*GetParam(), 1);
    EXPECT_EQ(std::count(out.begin(), out.begin() + 8 * 128, 0.0f), 8 * 128);
    expect_reference(out, problem.task);
  }
}

TEST_P(Attention, HasTheSameBitsForAnyNumberOfThreads) {
  for (const std::int64_t positions : {65, 1024, 5000}) {
    for (const std::int64_t rows : {2, 24}) {
      if (rows * positions > kEnoughPairs) continue;
      Problem problem({16, 8, 128, positions, rows, Mask::kCausal}, 6);
      const std::vector<float> expected = problem.run(*GetParam(), 1);
      for (int threads = 2; threads <= 8; ++threads) EXPECT_EQ(problem.run(*GetParam(), threads), expected) << threads;
    }
  }
}

TEST_P(Attention, StaysExactWhereOneScoreOutweighsAllOthers) {
  for (const std::int64_t rows : {1, 12}) {
    Problem problem({8, 2, 256, rows == 1 ? 3000 : 800, rows, Mask::kCausal}, 7);
    for (float& x : problem.q()) x *= 40;  // scores of some hundred: most weights are 0 in f32
    const std::vector<double> expected = reference(problem.task);
    const std::vector<float> got = problem.run(*GetParam(), 1);
    // A score of 200 is known to 2^-17 or so.
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-4);
  }
}

TEST_P(Attention, TellsOfAQueryThatIsNotANumber) {
  for (const std::int64_t rows : {1, 10}) {
    Problem problem({2, 1, 64, 300, rows, Mask::kCausal}, 8);
    problem.q()[3] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = problem.run(*GetParam(), 1);
    EXPECT_TRUE(std::all_of(out.begin(), out.begin() + 64, [](float x) { return std::isnan(x); }));
    EXPECT_TRUE(std::none_of(out.begin() + 64, out.end(), [](float x) { return std::isnan(x); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Attention, testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST(Task, IsCutByItsPositionsAlone) {
  Task task;
  task.dimension = 128;
  task.heads = 8;
  task.kv_heads = 2;
  task.rows = 1;
  task.positions = 1;
  EXPECT_EQ(task.chunks(), 1);
  task.positions = 1024;
  EXPECT_EQ(task.chunk_positions(), 32);
  task.positions = 1 << 20;
  EXPECT_EQ(task.chunk_positions(), kMostChunk);
  const std::int64_t chunks = task.chunks();
  task.rows = kFewRows;
  EXPECT_EQ(task.chunks(), chunks);
}

TEST(Task, OfManyTokensIsCutIntoEnoughItemsAndNoNarrowerThanAPanel) {
  const auto cut = [](std::int64_t rows, std::int64_t heads, std::int64_t kv_heads) {
    Task task;
    task.dimension = 128;
    task.heads = heads;
    task.kv_heads = kv_heads;
    task.rows = rows;
    task.positions = 4096;
    return task;
  };
  EXPECT_EQ(cut(512, 32, 8).block_rows(), 24);
  EXPECT_EQ(cut(512, 32, 8).wide_items(), 8 * 22);
  EXPECT_EQ(cut(32, 32, 8).block_rows(), 6);
  EXPECT_EQ(cut(512, 16, 16).block_rows(), 96);
  EXPECT_EQ(cut(512, 96, 1).block_rows(), 1);
}

TEST(Task, KnowsWhatTheKernelsCannotDo) {
  const auto with = [](auto&& change) {
    Task task;
    task.dimension = 128;
    task.heads = 8;
    task.kv_heads = 2;
    task.rows = task.positions = 1;
    change(task);
    return task.is_valid();
  };
  EXPECT_TRUE(with([](Task&) {}));
  EXPECT_FALSE(with([](Task& task) { task.dimension = 80; }));
  EXPECT_FALSE(with([](Task& task) { task.dimension = kMostDimension + 32; }));
  EXPECT_FALSE(with([](Task& task) { task.kv_heads = 3; }));
  const auto one_kv_head = [](Task& task) {
    task.heads = kMostPanels * kPanel + 1;
    task.kv_heads = 1;
  };
  EXPECT_TRUE(with(one_kv_head));
  EXPECT_FALSE(with([&](Task& task) {
    one_kv_head(task);
    task.rows = kFewRows + 1;
  }));
  EXPECT_FALSE(with([](Task& task) { task.positions = 0; }));
}

TEST(Kernels, AreThoseOfThisMachine) {
  EXPECT_EQ(available_kernels().back()->name, "scalar");
  if (const char* expected = std::getenv("KAZEIA_EXPECT_KERNELS")) {
    EXPECT_EQ(std::string(expected).substr(0, 4), std::string(kernels().name).substr(0, 4));
  }
}

}  // namespace
}  // namespace kazeia::attention
