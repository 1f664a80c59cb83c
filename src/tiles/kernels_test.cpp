// Every instruction set that this machine can run, against float64 products of the tile's weights with the quantised
// activations.
//
// The error of a product is measured against the sum of |q * scale * a| + |minimum * a| over the row: what float32
// arithmetic can lose depends on the size of the terms, not on what is left after they cancel.

#include "tiles/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "tiles/half.h"
#include "tiles/pack.h"
#include "tiles/sample_blocks.h"

namespace kazeia::tiles {
namespace {

using samples::Random;

constexpr double kTolerance = 1e-6;
constexpr std::uint32_t kGuard = 0x7fc0dead;  // a NaN that no kernel computes

// Memory with a given alignment between two guards.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t alignment) : bytes_(bytes), storage_(bytes + 2 * kMargin + alignment, kByte) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kMargin;
    begin_ = storage_.data() + kMargin + (alignment - address % alignment) % alignment;
  }
  std::uint8_t* data() { return begin_; }
  bool intact() const {
    const std::uint8_t* end = begin_ + bytes_;
    return std::all_of(storage_.data(), const_cast<const std::uint8_t*>(begin_), is_guard) &&
           std::all_of(end, storage_.data() + storage_.size(), is_guard);
  }

 private:
  static constexpr std::size_t kMargin = 256;
  static constexpr std::uint8_t kByte = 0xc3;
  static bool is_guard(std::uint8_t byte) { return byte == kByte; }
  std::size_t bytes_;
  std::vector<std::uint8_t> storage_;
  std::uint8_t* begin_;
};

int position(ColumnOrder order, int k) {
  constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return order == ColumnOrder::kNatural ? k : k / 8 * 8 + kPlaces[k % 8];
}

struct Tokens {
  Tokens(std::int64_t count, std::int64_t columns)
      : memory(Activations::bytes(count, columns), 64), view(Activations::on(memory.data(), count, columns)) {}
  Guarded memory;
  Activations view;

  double at(WeightType type, std::int64_t token, std::int64_t column) const {
    const std::int64_t block = column / 32;
    const int place = position(column_order(type), static_cast<int>(column % 32));
    return view.quants_of(token)[block * 32 + place] * static_cast<double>(view.scales_of(token)[block]);
  }
};

// Rows of very different size, so that a scale of the wrong block would be seen.
Tokens random_tokens(Random& random, WeightType type, std::int64_t count, std::int64_t columns) {
  Tokens tokens(count, columns);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (k % 32 == 0) normal = std::normal_distribution<float>(0, std::ldexp(1.0f, samples::uniform(random, -6, 2)));
      row[k] = normal(random);
    }
    scalar_kernels().quantise(row.data(), columns, column_order(type), tokens.view, t);
  }
  return tokens;
}

struct Reference {
  std::vector<double> product, magnitude;  // [tokens][32]
};

Reference multiply(WeightType type, const std::uint8_t* row_tile, const Tokens& tokens, std::int64_t count) {
  const std::int64_t columns = tokens.view.blocks * 32;
  const int tile_bytes = layout(type).tile_bytes;
  Reference out{std::vector<double>(static_cast<std::size_t>(count) * 32),
                std::vector<double>(static_cast<std::size_t>(count) * 32)};
  std::vector<double> activations(static_cast<std::size_t>(count * columns));
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      activations[static_cast<std::size_t>(t * columns + k)] = tokens.at(type, t, k);
    }
  }
  std::vector<double> weights(static_cast<std::size_t>(columns)), sizes(weights.size());
  for (int r = 0; r < 32; ++r) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto weight = samples::tile_weight(type, row_tile + k / 32 * tile_bytes, r, static_cast<int>(k % 32));
      weights[static_cast<std::size_t>(k)] = weight.value();
      sizes[static_cast<std::size_t>(k)] = std::fabs(weight.quant * weight.scale) + std::fabs(weight.minimum);
    }
    for (std::int64_t t = 0; t < count; ++t) {
      double product = 0, magnitude = 0;
      const double* a = activations.data() + t * columns;
      for (std::size_t k = 0; k < weights.size(); ++k) {
        product += weights[k] * a[k];
        magnitude += sizes[k] * std::fabs(a[k]);
      }
      out.product[static_cast<std::size_t>(t * 32 + r)] = product;
      out.magnitude[static_cast<std::size_t>(t * 32 + r)] = magnitude;
    }
  }
  return out;
}

void expect_close(const float* got, const Reference& reference, std::int64_t token) {
  for (std::int64_t r = 0; r < 32; ++r) {
    const auto i = static_cast<std::size_t>(token * 32 + r);
    // The last term: products of denormals have no relative precision.
    ASSERT_LE(std::fabs(got[r] - reference.product[i]), kTolerance * reference.magnitude[i] + 1e-36)
        << "row " << r << ", token " << token << ": " << got[r] << " instead of " << reference.product[i];
  }
}

// gemv for every token, expand + gemm over random pieces of the tokens; `row_tile` is 32-byte aligned at least.
void check_row_tile(const KernelSet& set, WeightType type, const std::uint8_t* row_tile, const Tokens& tokens,
                    std::int64_t count, Random& random) {
  const Reference reference = multiply(type, row_tile, tokens, count);

  for (std::int64_t t = 0; t < count; ++t) {
    float out[34];
    std::fill_n(reinterpret_cast<std::uint32_t*>(out), 34, kGuard);
    set.gemv(type, row_tile, tokens.view, t, out + 1);  // aligned as floats are, no better
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[0]), kGuard);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[33]), kGuard);
    SCOPED_TRACE("gemv");
    ASSERT_NO_FATAL_FAILURE(expect_close(out + 1, reference, t));
  }

  Guarded panel(set.panel_bytes(type, tokens.view.blocks), 64);
  set.expand(type, row_tile, tokens.view.blocks, panel.data());
  ASSERT_TRUE(panel.intact()) << "expand wrote beyond the panel";
  for (std::int64_t first = 0; first < count;) {
    const auto piece = static_cast<std::int64_t>(samples::uniform(random, 1, static_cast<int>(count - first)));
    const std::int64_t stride = 32 + samples::uniform(random, 0, 3) * 5;
    std::vector<std::uint32_t> out(static_cast<std::size_t>(1 + piece * stride), kGuard);
    auto* floats = reinterpret_cast<float*>(out.data()) + 1;
    set.gemm(type, panel.data(), tokens.view, first, piece, floats, stride);
    SCOPED_TRACE(testing::Message() << "gemm of tokens " << first << " + " << piece);
    ASSERT_EQ(out[0], kGuard);
    for (std::int64_t t = 0; t < piece; ++t) {
      ASSERT_NO_FATAL_FAILURE(expect_close(floats + t * stride, reference, first + t));
      for (std::int64_t i = 32; i < stride; ++i) ASSERT_EQ(out[static_cast<std::size_t>(1 + t * stride + i)], kGuard);
    }
    first += piece;
  }
  ASSERT_TRUE(panel.intact());
  ASSERT_TRUE(tokens.memory.intact());
}

void check_shape(const KernelSet& set, const Shape& shape, std::int64_t count, Random& random) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << ", " << count << " tokens");
  const auto blocks = samples::random_blocks(random, shape);
  Guarded tiles(shape.bytes(), kTileAlignment);
  pack(shape, blocks.data(), tiles.data(), 0, shape.row_tiles());
  const Tokens tokens = random_tokens(random, shape.type, count, shape.columns);
  for (std::int64_t ct = 0; ct < shape.row_tiles(); ++ct) {
    const std::uint8_t* row_tile = tiles.data() + static_cast<std::size_t>(ct) * shape.row_tile_bytes();
    ASSERT_NO_FATAL_FAILURE(check_row_tile(set, shape.type, row_tile, tokens, count, random));
  }
  ASSERT_TRUE(tiles.intact()) << "packing or a kernel wrote beyond the tiles";
}

struct Case {
  const KernelSet* set;
  WeightType type;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const KernelSet* set : available_kernels()) {
    for (const WeightType type : samples::all_types()) cases.push_back({set, type});
  }
  return cases;
}

std::string identifier(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

class Kernels : public testing::TestWithParam<Case> {};

TEST_P(Kernels, AgreeWithFloat64OnRandomShapes) {
  const auto [set, type] = GetParam();
  Random random(samples::seed() + static_cast<std::uint64_t>(type));
  const int unit = layout(type).block_columns;
  for (int round = 0; round < samples::rounds(8); ++round) {
    const Shape shape{type, samples::uniform(random, 1, 200),
                      std::int64_t{unit} * samples::uniform(random, 1, 2560 / unit)};
    // As many tokens as keep the reference product small.
    const std::int64_t most = 2'000'000 / (shape.row_tiles() * 32 * shape.columns);
    const auto limit = static_cast<int>(std::clamp<std::int64_t>(most, 1, 130));
    ASSERT_NO_FATAL_FAILURE(check_shape(*set, shape, samples::uniform(random, 1, limit), random));
  }
}

TEST_P(Kernels, AgreeWithFloat64OnTheShapesOfModels) {
  const auto [set, type] = GetParam();
  Random random(samples::seed() + 100 + static_cast<std::uint64_t>(type));
  for (const auto& [rows, columns, count] : {std::array<int, 3>{32, 9728, 5}, {40, 2560, 3}, {32, 512, 130}}) {
    ASSERT_NO_FATAL_FAILURE(check_shape(*set, {type, rows, columns}, count, random));
  }
}

TEST_P(Kernels, AgreeWithFloat64ForEveryNumberOfTokens) {
  const auto [set, type] = GetParam();
  Random random(samples::seed() + 200 + static_cast<std::uint64_t>(type));
  for (int count = 1; count <= 20; ++count) {
    ASSERT_NO_FATAL_FAILURE(check_shape(*set, {type, 32, 256}, count, random));
  }
}

// Every sum of products at its largest: a kernel that saturates or overflows 16 bits anywhere gives itself away.
TEST_P(Kernels, DoNotSaturateOnExtremeQuantsAndActivations) {
  const auto [set, type] = GetParam();
  Random random(samples::seed() + 300);
  const Layout& entry = layout(type);
  constexpr std::int64_t kColumns = 256, kBlocks = kColumns / 32;
  const std::uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f, 0x81, 0x0f, 0xf0, 0x88, 0x77};
  for (const std::uint8_t fill : fills) {
    Guarded tiles(static_cast<std::size_t>(kBlocks * entry.tile_bytes), kTileAlignment);
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      std::uint8_t* tile = tiles.data() + b * entry.tile_bytes;
      std::memset(tile, fill, static_cast<std::size_t>(entry.quant_bytes));
      for (int i = 0; i < 32 * entry.scale_count; ++i) {
        if (type == WeightType::kMXFP4) {
          tile[entry.scale_offset + i] = static_cast<std::uint8_t>(samples::uniform(random, 115, 130));
        } else {
          samples::put_half(tile + entry.scale_offset + 2 * i, samples::random_half(random) & 0x7fff);
        }
      }
    }
    // All +127, all -127, alternating by column, alternating by four columns, random signs, zero.
    constexpr std::int64_t kPatterns = 6;
    Tokens tokens(kPatterns, kColumns);
    const Activations& a = tokens.view;
    for (std::int64_t t = 0; t < kPatterns; ++t) {
      for (std::int64_t b = 0; b < kBlocks; ++b) {
        a.scales[t * kBlocks + b] = half_to_float(samples::random_half(random) & 0x7fff);
        a.sums[(t * kBlocks + b) * 2] = a.sums[(t * kBlocks + b) * 2 + 1] = 0;
        for (int k = 0; k < 32; ++k) {
          const int signs[] = {1, -1, k % 2 ? -1 : 1, k / 4 % 2 ? -1 : 1, samples::uniform(random, 0, 1) ? 1 : -1, 0};
          const int quant = 127 * signs[t];
          a.quants[t * a.quant_stride + b * 32 + position(column_order(type), k)] = static_cast<std::int8_t>(quant);
          a.sums[(t * kBlocks + b) * 2 + k / 16] += quant;
        }
      }
    }
    SCOPED_TRACE(testing::Message() << "fill " << static_cast<int>(fill));
    ASSERT_NO_FATAL_FAILURE(check_row_tile(*set, type, tiles.data(), tokens, kPatterns, random));
  }
}

TEST_P(Kernels, AgreeWithFloat64OnArbitraryTileBytes) {
  const auto [set, type] = GetParam();
  Random random(samples::seed() + 400);
  const Layout& entry = layout(type);
  for (int round = 0; round < samples::rounds(4); ++round) {
    const std::int64_t blocks = samples::uniform(random, 1, 40);
    Guarded tiles(static_cast<std::size_t>(blocks * entry.tile_bytes), kTileAlignment);
    for (std::int64_t i = 0; i < blocks * entry.tile_bytes; ++i) tiles.data()[i] = static_cast<std::uint8_t>(random());
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::uint8_t* scales = tiles.data() + b * entry.tile_bytes + entry.scale_offset;
      for (int i = 0; i < 32 * entry.scale_count; ++i) {
        if (type == WeightType::kMXFP4) {
          scales[i] = static_cast<std::uint8_t>(samples::uniform(random, 0, 140));
        } else {  // any finite half, zero and subnormal too
          const int half = samples::uniform(random, 0, 0x7bff) | samples::uniform(random, 0, 1) << 15;
          samples::put_half(scales + 2 * i, static_cast<std::uint16_t>(half));
        }
      }
    }
    const std::int64_t count = samples::uniform(random, 1, 12);
    const Tokens tokens = random_tokens(random, type, count, blocks * 32);
    ASSERT_NO_FATAL_FAILURE(check_row_tile(*set, type, tiles.data(), tokens, count, random));
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return identifier(info.param.set->name) + "_" + std::string(layout(info.param.type).name);
}

INSTANTIATE_TEST_SUITE_P(, Kernels, testing::ValuesIn(all_cases()), name_of_case);

class Quantise : public testing::TestWithParam<const KernelSet*> {
 protected:
  // Row 1 of three, by the set under test and by the scalar one: all bits equal, the other rows untouched.
  void compare(const std::vector<float>& values, ColumnOrder order) {
    const auto columns = static_cast<std::int64_t>(values.size());
    // At the end of its allocation, so that a sanitizer sees a read beyond the last column.
    const auto x = std::make_unique<float[]>(values.size());
    std::copy(values.begin(), values.end(), x.get());
    Tokens expected(3, columns), got(3, columns);
    for (Tokens* tokens : {&expected, &got}) {
      std::memset(tokens->memory.data(), 0x55, Activations::bytes(3, columns));
    }
    scalar_kernels().quantise(x.get(), columns, order, expected.view, 1);
    GetParam()->quantise(x.get(), columns, order, got.view, 1);
    ASSERT_TRUE(got.memory.intact());
    const std::int64_t blocks = expected.view.blocks;
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (int k = 0; k < 32; ++k) {
        ASSERT_EQ(got.view.quants_of(1)[b * 32 + k], expected.view.quants_of(1)[b * 32 + k])
            << "block " << b << ", " << k;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got.view.scales_of(1)[b]),
                std::bit_cast<std::uint32_t>(expected.view.scales_of(1)[b]))
          << "block " << b;
      ASSERT_EQ(got.view.sums_of(1)[2 * b], expected.view.sums_of(1)[2 * b]) << "block " << b;
      ASSERT_EQ(got.view.sums_of(1)[2 * b + 1], expected.view.sums_of(1)[2 * b + 1]) << "block " << b;
    }
    for (const std::int64_t t : {0, 2}) {
      const auto untouched = [](auto value) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
        return std::all_of(bytes, bytes + sizeof value, [](std::uint8_t byte) { return byte == 0x55; });
      };
      ASSERT_TRUE(std::all_of(got.view.quants_of(t), got.view.quants_of(t) + blocks * 32, untouched));
      ASSERT_TRUE(std::all_of(got.view.scales_of(t), got.view.scales_of(t) + blocks, untouched));
      ASSERT_TRUE(std::all_of(got.view.sums_of(t), got.view.sums_of(t) + 2 * blocks, untouched));
    }
  }

  void compare(const std::vector<float>& values) {
    for (const ColumnOrder order : {ColumnOrder::kNatural, ColumnOrder::kEvenOdd}) {
      SCOPED_TRACE(order == ColumnOrder::kNatural ? "natural order" : "even-odd order");
      ASSERT_NO_FATAL_FAILURE(compare(values, order));
    }
  }
};

TEST_P(Quantise, GivesTheBitsOfTheScalarCodeForEveryNumberOfColumns) {
  Random random(samples::seed());
  std::normal_distribution<float> normal;
  for (int columns = 1; columns <= 200; ++columns) {
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (float& value : values) value = normal(random);
    SCOPED_TRACE(testing::Message() << columns << " columns");
    ASSERT_NO_FATAL_FAILURE(compare(values));
  }
}

TEST_P(Quantise, GivesTheBitsOfTheScalarCodeAtEveryMagnitude) {
  Random random(samples::seed());
  std::normal_distribution<float> normal;
  for (int exponent = -149; exponent <= 126; ++exponent) {  // denormals to nearly infinity
    std::vector<float> values(96);
    for (float& value : values) value = std::ldexp(std::clamp(normal(random), -1.9f, 1.9f), exponent);
    SCOPED_TRACE(testing::Message() << "2^" << exponent);
    ASSERT_NO_FATAL_FAILURE(compare(values));
  }
}

TEST_P(Quantise, GivesTheBitsOfTheScalarCodeForZerosTiesAndExtremes) {
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  ASSERT_NO_FATAL_FAILURE(compare(std::vector<float>(64, 0.0f)));
  ASSERT_NO_FATAL_FAILURE(compare(std::vector<float>(64, -0.0f)));
  ASSERT_NO_FATAL_FAILURE(compare(std::vector<float>(33, kMax)));
  ASSERT_NO_FATAL_FAILURE(compare(std::vector<float>(33, -kMax)));
  ASSERT_NO_FATAL_FAILURE(compare(std::vector<float>(40, kTiny)));
  std::vector<float> ties(256);  // scale 1: every quant but the first of a block lies between two integers
  for (std::size_t k = 0; k < ties.size(); ++k) {
    ties[k] = k % 32 == 0 ? 127.0f : static_cast<float>(static_cast<int>(k) - 128) * 0.5f;
  }
  ASSERT_NO_FATAL_FAILURE(compare(ties));
  std::vector<float> mixed(64, kTiny);
  mixed[5] = kMax;
  mixed[40] = -1.0f;
  ASSERT_NO_FATAL_FAILURE(compare(mixed));
}

// A broken device hands on NaN and infinity. What they become is the processor's choice, but the offsets of unsigned
// weights are taken off by these sums: any other number there would overflow.
TEST_P(Quantise, SumsTheQuantsThatItKeepsWhateverTheValuesAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    for (const int step : {1, 2, 7, 64}) {
      std::vector<float> values(64, 0.25f);
      for (std::size_t k = 3; k < values.size(); k += static_cast<std::size_t>(step)) values[k] = bad;
      Tokens tokens(1, 64);
      GetParam()->quantise(values.data(), 64, ColumnOrder::kNatural, tokens.view, 0);
      for (int half = 0; half < 4; ++half) {
        int sum = 0;
        for (int k = 0; k < 16; ++k) sum += tokens.view.quants_of(0)[half * 16 + k];
        EXPECT_EQ(tokens.view.sums_of(0)[half], sum) << bad << " in every " << step;
      }
    }
  }
}

// The scalar code itself, against the definition.
TEST(QuantiseScalar, RoundsToNearestWithAScaleOfHalfPrecision) {
  Random random(samples::seed());
  std::normal_distribution<float> normal;
  std::vector<float> values(128);
  for (float& value : values) value = normal(random);
  for (const ColumnOrder order : {ColumnOrder::kNatural, ColumnOrder::kEvenOdd}) {
    Tokens tokens(1, 128);
    scalar_kernels().quantise(values.data(), 128, order, tokens.view, 0);
    for (int b = 0; b < 4; ++b) {
      float largest = 0;
      for (int k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(values[static_cast<std::size_t>(b * 32 + k)]));
      EXPECT_EQ(tokens.view.scales_of(0)[b], half_to_float(float_to_half(largest / 127.0f)));
      int sums[2] = {0, 0};
      for (int k = 0; k < 32; ++k) {
        const int quant = tokens.view.quants_of(0)[b * 32 + position(order, k)];
        EXPECT_NEAR(quant, values[static_cast<std::size_t>(b * 32 + k)] * 127.0f / largest, 0.5001);
        sums[k / 16] += quant;
      }
      EXPECT_EQ(tokens.view.sums_of(0)[2 * b], sums[0]);
      EXPECT_EQ(tokens.view.sums_of(0)[2 * b + 1], sums[1]);
    }
  }
}

std::string name_of_set(const testing::TestParamInfo<const KernelSet*>& info) {
  return identifier(info.param->name);
}

INSTANTIATE_TEST_SUITE_P(, Quantise, testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         name_of_set);

TEST(AvailableKernels, AreNamedDifferentlyAndEndWithScalar) {
  const auto sets = available_kernels();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.back()->name, "scalar");
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (std::size_t j = i + 1; j < sets.size(); ++j) EXPECT_NE(sets[i]->name, sets[j]->name);
  }
}

// scripts/test-aarch64 sets the variable for each CPU that it emulates.
TEST(AvailableKernels, BestOneIsWhatThisMachineIsExpectedToChoose) {
  const char* expected = std::getenv("KAZEIA_EXPECT_KERNELS");
  if (expected == nullptr) GTEST_SKIP() << "KAZEIA_EXPECT_KERNELS is not set";
  EXPECT_EQ(available_kernels().front()->name, expected);
  EXPECT_EQ(kernels().name, expected);
}

}  // namespace
}  // namespace kazeia::tiles
