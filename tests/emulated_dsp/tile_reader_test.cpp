// Our own tile reader against ggml's blocks, through two independent packers' bytes: src/tiles here, upstream's repack
// in host_product_test.
#include "emulated_dsp/tile_reader.h"

#include <ggml.h>

#include <cmath>

#include "emulated_dsp/tensor.h"
#include "emulated_dsp/tile_comparison.h"
#include "emulated_dsp/tiled_product.h"
#include "tiles/pack.h"
#include "tiles/sample_blocks.h"

namespace kazeia::emulated_dsp {
namespace {

using tiles::Shape;
using tiles::WeightType;
using tiles::samples::Random;

std::vector<std::uint8_t> packed(const Shape& shape, const std::vector<std::uint8_t>& blocks) {
  std::vector<std::uint8_t> bytes(shape.bytes());
  tiles::pack(shape, blocks.data(), bytes.data(), 0, shape.row_tiles());
  return bytes;
}

class TileReader : public testing::TestWithParam<WeightType> {};

TEST_P(TileReader, ReadsWhatGgmlReadsFromTheBlocks) {
  Random random(tiles::samples::seed());
  const WeightType type = GetParam();
  const int unit = tiles::layout(type).block_columns;
  for (int round = 0; round < tiles::samples::rounds(8); ++round) {
    const Shape shape{type, tiles::samples::uniform(random, 1, 130),
                      std::int64_t{unit} * tiles::samples::uniform(random, 1, 1024 / unit)};
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns);
    const auto blocks = tiles::samples::random_blocks(random, shape);
    ASSERT_NO_FATAL_FAILURE(expect_tiles_mean_blocks(shape, packed(shape, blocks).data(), blocks));
  }
}

TEST_P(TileReader, ASwappedNibbleOrderIsSeen) {
  Random random(tiles::samples::seed());
  const Shape shape{GetParam(), 32, 256};
  auto bytes = packed(shape, tiles::samples::random_blocks(random, shape));
  std::vector<float> before(kTileElements);
  std::vector<float> after(kTileElements);
  read_tile(type_of(shape.type), bytes.data(), before.data());
  for (int i = 0; i < 512; ++i) bytes[i] = static_cast<std::uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
  read_tile(type_of(shape.type), bytes.data(), after.data());
  EXPECT_NE(before, after);
}

// The product in double precision over the rounded weights and activations.
TEST_P(TileReader, TheProductIsThatOfTheRoundedValues) {
  Random random(tiles::samples::seed());
  const WeightType type = GetParam();
  const int unit = tiles::layout(type).block_columns;
  std::normal_distribution<float> normal;
  for (const auto& [rows, tokens] : {std::pair{1, 1}, std::pair{70, 3}, std::pair{64, 33}}) {
    const Shape shape{type, rows, std::int64_t{unit} * 3 * (256 / unit) + (unit == 32 ? 32 * 9 : 256 * 3)};
    SCOPED_TRACE(testing::Message() << rows << " x " << shape.columns << ", " << tokens << " tokens");
    const auto blocks = tiles::samples::random_blocks(random, shape);
    auto bytes = packed(shape, blocks);
    std::vector<float> x(static_cast<std::size_t>(shape.columns * tokens));
    for (float& value : x) value = normal(random);
    std::vector<float> addend(static_cast<std::size_t>(rows));
    for (float& value : addend) value = normal(random);
    std::vector<float> y(static_cast<std::size_t>(rows * tokens));

    Tensor weights;
    weights.data = bytes.data();
    weights.type = type_of(type);
    weights.tiled = true;
    weights.ne = {shape.columns, shape.row_tiles() * 32, 1, 1};
    weights.nb = {0, 0, shape.bytes(), shape.bytes()};
    const auto plain = [](std::vector<float>& data, std::int64_t ne0, std::int64_t ne1) {
      return contiguous_at(reinterpret_cast<std::uint8_t*>(data.data()), GGML_TYPE_F32, {ne0, ne1, 1, 1});
    };
    const Tensor activations = plain(x, shape.columns, tokens);
    const Tensor bias = plain(addend, rows, 1);
    const Tensor dst = plain(y, rows, tokens);
    for (const Tensor* more : {static_cast<const Tensor*>(nullptr), &bias}) {
      multiply_tiles(weights, activations, more, dst, 2);
      const auto rounded = [](float value) { return double{ggml_fp16_to_fp32(ggml_fp32_to_fp16(value))}; };
      std::vector<float> tile(kTileElements);
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<double> weight(static_cast<std::size_t>(shape.columns));
        for (std::int64_t column = 0; column < shape.columns; ++column) {
          const auto number = static_cast<std::size_t>(row / 32 * shape.column_tiles() + column / 32);
          if (column % 32 == 0) {
            read_tile(weights.type, bytes.data() + number * tile_format(weights.type)->tile_bytes, tile.data());
          }
          weight[static_cast<std::size_t>(column)] =
              rounded(tile[static_cast<std::size_t>(column % 32 * 32 + row % 32)]);
        }
        for (std::int64_t token = 0; token < tokens; ++token) {
          double sum = more == nullptr ? 0 : addend[static_cast<std::size_t>(row)];
          double size = std::fabs(sum);
          for (std::int64_t k = 0; k < shape.columns; ++k) {
            const double term =
                weight[static_cast<std::size_t>(k)] * rounded(x[static_cast<std::size_t>(token * shape.columns + k)]);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(y[static_cast<std::size_t>(token * rows + row)], sum, size * 1e-5)
              << "row " << row << " token " << token;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, TileReader, testing::ValuesIn(tiles::samples::all_types()),
                         tiles::samples::name_of);

}  // namespace
}  // namespace kazeia::emulated_dsp
