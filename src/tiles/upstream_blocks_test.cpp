// The formats as upstream itself writes and reads them: blocks from ggml's quantisers, values from ggml's readers.

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "tiles/half.h"
#include "tiles/kernels.h"
#include "tiles/pack.h"
#include "tiles/sample_blocks.h"

namespace kazeia::tiles {
namespace {

ggml_type ggml_type_of(WeightType type) {
  return static_cast<ggml_type>(type);
}

class UpstreamBlocks : public testing::TestWithParam<WeightType> {
 protected:
  // A matrix of normally distributed weights with rows of different size, quantised by upstream.
  std::vector<std::uint8_t> quantised(const Shape& shape, samples::Random& random) {
    std::vector<float> weights(static_cast<std::size_t>(shape.rows * shape.columns));
    std::normal_distribution<float> normal(0, 0.02f);
    for (float& weight : weights) weight = normal(random);
    for (std::int64_t r = 0; r < shape.rows; r += 3) {
      for (std::int64_t k = 0; k < shape.columns; ++k) weights[static_cast<std::size_t>(r * shape.columns + k)] *= 16;
    }
    std::vector<std::uint8_t> blocks(shape.block_bytes());
    const std::size_t written = ggml_quantize_chunk(ggml_type_of(shape.type), weights.data(), blocks.data(), 0,
                                                    shape.rows, shape.columns, nullptr);
    EXPECT_EQ(written, blocks.size());
    return blocks;
  }
};

TEST_P(UpstreamBlocks, TheTableHasUpstreamsTypesAndSizes) {
  const Layout& entry = layout(GetParam());
  const ggml_type type = ggml_type_of(GetParam());
  EXPECT_EQ(static_cast<std::size_t>(entry.block_bytes), ggml_type_size(type));
  EXPECT_EQ(entry.block_columns, ggml_blck_size(type));
  std::string name = ggml_type_name(type);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(name, entry.name);
  const Shape shape{GetParam(), 7, 512};
  EXPECT_EQ(shape.block_row_bytes(), ggml_row_size(type, 512));
}

TEST_P(UpstreamBlocks, ExactTypesComeBackByteForByteAndTheOthersWithTheirQuants) {
  samples::Random random(samples::seed());
  for (const int rows : {1, 5, 32, 77, 160}) {
    const Shape shape{GetParam(), rows, 1024};
    const auto blocks = quantised(shape, random);
    std::vector<std::uint8_t> tiles(shape.bytes()), back(blocks.size());
    pack(shape, blocks.data(), tiles.data(), 2);
    unpack(shape, tiles.data(), back.data(), 0, rows);
    if (layout(shape.type).exact) {
      ASSERT_EQ(back, blocks) << rows << " rows";
      continue;
    }
    const std::size_t row_bytes = shape.block_row_bytes();
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        ASSERT_EQ(samples::block_quant(shape.type, back.data() + r * row_bytes, k),
                  samples::block_quant(shape.type, blocks.data() + r * row_bytes, k));
      }
    }
  }
}

TEST_P(UpstreamBlocks, DequantisedRowsAreWhatUpstreamReads) {
  samples::Random random(samples::seed());
  const Shape shape{GetParam(), 77, 1024};
  const auto blocks = quantised(shape, random);
  std::vector<std::uint8_t> tiles(shape.bytes());
  pack(shape, blocks.data(), tiles.data(), 0, shape.row_tiles());
  const auto to_float = ggml_get_type_traits(ggml_type_of(shape.type))->to_float;
  std::vector<float> expected(1024), got(1024);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    to_float(blocks.data() + static_cast<std::size_t>(r) * shape.block_row_bytes(), expected.data(), shape.columns);
    dequantise_row(shape, tiles.data(), r, got.data());
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const std::uint8_t* tile =
          tiles.data() + (r / 32 * shape.column_tiles() + k / 32) * layout(shape.type).tile_bytes;
      const auto weight = samples::tile_weight(shape.type, tile, static_cast<int>(r % 32), static_cast<int>(k % 32));
      const double size = std::fabs(weight.quant * weight.scale) + std::fabs(weight.minimum);
      // K-quants: the tile's scale is d * scale rounded to eleven bits.
      const double tolerance = layout(shape.type).exact ? 0x1p-23 : 0x1p-11;
      if (shape.type == WeightType::kQ4_1 || !layout(shape.type).exact) {
        ASSERT_NEAR(got[i], expected[i], size * tolerance) << "row " << r << " column " << k;
      } else {
        ASSERT_EQ(got[i], expected[i]) << "row " << r << " column " << k;
      }
    }
  }
}

// The same activations as upstream's Q8_0 path: scale and quants bit for bit.
TEST_P(UpstreamBlocks, ActivationsAreThoseOfUpstreamsQ8Path) {
  samples::Random random(samples::seed());
  std::normal_distribution<float> normal;
  std::vector<float> x(1024);
  for (float& value : x) value = normal(random);
  std::vector<std::uint8_t> blocks(1024 / 32 * 34);
  ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(x.data(), blocks.data(), 1024);
  std::vector<std::uint8_t> memory(Activations::bytes(1, 1024) + 64);
  const Activations a =
      Activations::on(memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64, 1, 1024);
  for (const KernelSet* set : available_kernels()) {
    set->quantise(x.data(), 1024, ColumnOrder::kNatural, a, 0);
    for (std::size_t b = 0; b < 32; ++b) {
      ASSERT_EQ(a.scales_of(0)[b], half_to_float(samples::get_half(blocks.data() + 34 * b))) << set->name;
      for (std::size_t k = 0; k < 32; ++k) {
        ASSERT_EQ(a.quants_of(0)[32 * b + k], static_cast<std::int8_t>(blocks[34 * b + 2 + k])) << set->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, UpstreamBlocks, testing::ValuesIn(samples::all_types()), samples::name_of);

}  // namespace
}  // namespace kazeia::tiles
