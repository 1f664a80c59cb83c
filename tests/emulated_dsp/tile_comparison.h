// For tests: our tile reader against ggml's reading of the blocks that the tiles were packed from, whoever packed them.
#pragma once

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "emulated_dsp/tile_reader.h"
#include "tiles/sample_blocks.h"

namespace kazeia::emulated_dsp {

inline ggml_type type_of(tiles::WeightType type) {
  return static_cast<ggml_type>(type);
}

// Every weight, and zeros in the rows that fill up the last tile. `packed` is shape.bytes() long. Stops at the first
// difference: call it in ASSERT_NO_FATAL_FAILURE.
inline void expect_tiles_mean_blocks(const tiles::Shape& shape, const std::uint8_t* packed,
                                     const std::vector<std::uint8_t>& blocks) {
  const ggml_type type = type_of(shape.type);
  const std::size_t tile_bytes = tile_format(type)->tile_bytes;
  ASSERT_EQ(tile_bytes, static_cast<std::size_t>(tiles::layout(shape.type).tile_bytes));
  std::vector<float> wanted(static_cast<std::size_t>(shape.rows * shape.columns));
  ggml_get_type_traits(type)->to_float(blocks.data(), wanted.data(), shape.rows * shape.columns);

  // K-quants: scales are good to 2^-11, and a weight is the sum of two such products.
  const auto allowed = [&shape](const std::uint8_t* tile, std::int64_t row, std::int64_t column) {
    if (tiles::layout(shape.type).exact) return 0.0;
    const auto parts =
        tiles::samples::tile_weight(shape.type, tile, static_cast<int>(row % 32), static_cast<int>(column % 32));
    return (std::fabs(parts.quant * parts.scale) + std::fabs(parts.minimum)) * 0x1p-11 + 1e-7;
  };
  std::vector<float> values(kTileElements);
  const std::uint8_t* tile = packed;
  for (std::int64_t row_tile = 0; row_tile < shape.row_tiles(); ++row_tile) {
    for (std::int64_t column_tile = 0; column_tile < shape.column_tiles(); ++column_tile, tile += tile_bytes) {
      read_tile(type, tile, values.data());
      for (std::int64_t i = 0; i < kTileElements; ++i) {
        const std::int64_t row = row_tile * kTileSide + i % kTileSide;
        const std::int64_t column = column_tile * kTileSide + i / kTileSide;
        const float got = values[static_cast<std::size_t>(i)];
        if (row >= shape.rows) {
          ASSERT_EQ(got, 0.0F) << "padding row " << row;
        } else {
          ASSERT_NEAR(got, wanted[static_cast<std::size_t>(row * shape.columns + column)], allowed(tile, row, column))
              << "row " << row << " column " << column;
        }
      }
    }
  }
}

}  // namespace kazeia::emulated_dsp
