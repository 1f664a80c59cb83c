#include "tiles/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tiles/half.h"
#include "tiles/kernels.h"
#include "tiles/pack_fast.h"
#include "tiles/sample_blocks.h"

namespace kazeia::tiles {
namespace {

using samples::Random;

const std::uint8_t* tile_of(const Shape& shape, const std::vector<std::uint8_t>& tiles, std::int64_t row,
                            std::int64_t column) {
  const std::int64_t number = row / 32 * shape.column_tiles() + column / 32;
  return tiles.data() + number * layout(shape.type).tile_bytes;
}

std::vector<std::uint8_t> packed(const Shape& shape, const std::vector<std::uint8_t>& blocks) {
  std::vector<std::uint8_t> tiles(shape.bytes(), 0xa5);
  pack(shape, blocks.data(), tiles.data(), 0, shape.row_tiles());
  return tiles;
}

Shape random_shape(Random& random, WeightType type, int most_rows = 200) {
  const int unit = layout(type).block_columns;
  return {type, samples::uniform(random, 1, most_rows), std::int64_t{unit} * samples::uniform(random, 1, 1024 / unit)};
}

class Pack : public testing::TestWithParam<WeightType> {};

TEST_P(Pack, EveryQuantStandsWhereTheLayoutSays) {
  Random random(samples::seed());
  for (int round = 0; round < samples::rounds(12); ++round) {
    const Shape shape = random_shape(random, GetParam());
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns);
    const auto blocks = samples::random_blocks(random, shape);
    const auto tiles = packed(shape, blocks);
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const std::uint8_t* row = blocks.data() + r * static_cast<std::int64_t>(shape.block_row_bytes());
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        const std::uint8_t* tile = tile_of(shape, tiles, r, k);
        ASSERT_EQ(samples::tile_quant(shape.type, tile, static_cast<int>(r % 32), static_cast<int>(k % 32)),
                  samples::block_quant(shape.type, row, k))
            << "row " << r << " column " << k;
      }
    }
  }
}

TEST_P(Pack, TheQuantReadersAgreeWithTheFormats) {
  Random random(samples::seed());
  const Shape shape{GetParam(), 40, 512};
  const auto blocks = samples::random_blocks(random, shape);
  const auto tiles = packed(shape, blocks);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::uint8_t* row = blocks.data() + r * static_cast<std::int64_t>(shape.block_row_bytes());
    for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt) {
      std::uint8_t from_block[32], from_tile[32];
      block_row_quants(shape.type, row, kt, from_block);
      tile_row_quants(shape.type, tile_of(shape, tiles, r, kt * 32), static_cast<int>(r % 32), from_tile);
      for (int k = 0; k < 32; ++k) {
        ASSERT_EQ(from_block[k], samples::block_quant(shape.type, row, kt * 32 + k));
        ASSERT_EQ(from_tile[k], from_block[k]);
      }
    }
  }
}

TEST_P(Pack, UnpackingGivesTheBlocksBack) {
  Random random(samples::seed());
  for (int round = 0; round < samples::rounds(12); ++round) {
    const Shape shape = random_shape(random, GetParam());
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns);
    const auto blocks = samples::random_blocks(random, shape);
    const auto tiles = packed(shape, blocks);
    const auto first = static_cast<std::int64_t>(samples::uniform(random, 0, static_cast<int>(shape.rows - 1)));
    const auto last =
        static_cast<std::int64_t>(samples::uniform(random, static_cast<int>(first) + 1, static_cast<int>(shape.rows)));
    const std::size_t row_bytes = shape.block_row_bytes();
    const std::size_t bytes = row_bytes * static_cast<std::size_t>(last - first);
    std::vector<std::uint8_t> back(bytes + 64, 0x5a);
    unpack(shape, tiles.data(), back.data(), first, last);
    EXPECT_TRUE(std::all_of(back.begin() + static_cast<std::ptrdiff_t>(bytes), back.end(),
                            [](std::uint8_t byte) { return byte == 0x5a; }));
    const std::uint8_t* expected = blocks.data() + static_cast<std::size_t>(first) * row_bytes;
    if (layout(shape.type).exact) {
      ASSERT_EQ(std::memcmp(back.data(), expected, bytes), 0);
      continue;
    }
    for (std::int64_t r = first; r < last; ++r) {
      const std::size_t at = static_cast<std::size_t>(r - first) * row_bytes;
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        ASSERT_EQ(samples::block_quant(shape.type, back.data() + at, k),
                  samples::block_quant(shape.type, expected + at, k));
      }
    }
  }
}

TEST_P(Pack, PaddingRowsHoldZeroWeightsAsUpstreamWritesThem) {
  Random random(samples::seed());
  const bool eight = GetParam() == WeightType::kQ4_0 || GetParam() == WeightType::kIQ4_NL;
  for (const int rows : {1, 31, 33, 63}) {
    const Shape shape{GetParam(), rows, 512};
    const auto tiles = packed(shape, samples::random_blocks(random, shape));
    for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt) {
      const std::uint8_t* tile = tile_of(shape, tiles, rows, kt * 32);
      for (int r = rows % 32; r < 32; ++r) {
        for (int k = 0; k < 32; ++k) {
          ASSERT_EQ(samples::tile_quant(shape.type, tile, r, k), eight ? 8 : 0) << "row " << r;
          const samples::TileWeight weight = samples::tile_weight(shape.type, tile, r, k);
          ASSERT_EQ(weight.minimum, 0);
          if (shape.type == WeightType::kMXFP4) {
            ASSERT_EQ(tile[512 + r], 0);  // 2^-128; the quant 0 makes the weight zero
          } else {
            ASSERT_EQ(weight.scale, 0);
          }
        }
      }
    }
  }
}

TEST_P(Pack, ManyThreadsWriteTheSameBytesAsOne) {
  Random random(samples::seed());
  const Shape shape{GetParam(), 1100, 1024};  // large enough for a team
  const auto blocks = samples::random_blocks(random, shape);
  const auto one = packed(shape, blocks);
  for (int threads = 1; threads <= 8; ++threads) {
    std::vector<std::uint8_t> tiles(shape.bytes(), 0x11);
    pack(shape, blocks.data(), tiles.data(), threads);
    ASSERT_EQ(tiles, one) << threads << " threads";
  }
}

TEST_P(Pack, VectorCodeWritesTheSameBytesAsThePlainCode) {
  Random random(samples::seed());
  const int unit = layout(GetParam()).block_columns;
  for (int round = 0; round < samples::rounds(20); ++round) {
    const Shape shape{GetParam(), 96, std::int64_t{unit} * samples::uniform(random, 1, 1536 / unit)};
    SCOPED_TRACE(testing::Message() << shape.columns << " columns");
    const auto blocks = samples::random_blocks(random, shape);
    const std::size_t stride = shape.row_tile_bytes();
    const std::int64_t row_block = samples::uniform(random, 0, 2);
    // The plain code is what the other rows run through: a matrix that ends one row later takes it for its last
    // row block, and its first 31 rows must come out the same.
    std::vector<std::uint8_t> fast(stride + 64, 0x77);
    if (!pack_row_tile_fast(shape, blocks.data(), fast.data(), row_block)) {
      EXPECT_EQ(fast, std::vector<std::uint8_t>(stride + 64, 0x77)) << "a refusal must write nothing";
      return;
    }
    EXPECT_TRUE(std::all_of(fast.begin() + static_cast<std::ptrdiff_t>(stride), fast.end(),
                            [](std::uint8_t byte) { return byte == 0x77; }));
    const auto plain_rows = [&](std::int64_t drop) {
      const Shape cut{shape.type, 31, shape.columns};
      std::vector<std::uint8_t> tiles(stride);
      pack(cut, blocks.data() + static_cast<std::size_t>(row_block * 32 + drop) * shape.block_row_bytes(), tiles.data(),
           0, 1);
      return tiles;
    };
    // Rows 0..30 from the first cut, row 31 as row 30 of the second.
    const auto head = plain_rows(0), tail = plain_rows(1);
    for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt) {
      const std::int64_t at = kt * layout(shape.type).tile_bytes;
      for (int r = 0; r < 32; ++r) {
        const std::uint8_t* plain = (r < 31 ? head.data() : tail.data()) + at;
        const int plain_row = r < 31 ? r : 30;
        for (int k = 0; k < 32; ++k) {
          ASSERT_EQ(samples::tile_quant(shape.type, fast.data() + at, r, k),
                    samples::tile_quant(shape.type, plain, plain_row, k))
              << "row " << r << " column " << kt * 32 + k;
        }
        for (const int k : {0, 16}) {
          const auto a = samples::tile_weight(shape.type, fast.data() + at, r, k);
          const auto b = samples::tile_weight(shape.type, plain, plain_row, k);
          ASSERT_EQ(std::bit_cast<std::uint64_t>(a.scale), std::bit_cast<std::uint64_t>(b.scale)) << "row " << r;
          ASSERT_EQ(std::bit_cast<std::uint64_t>(a.minimum), std::bit_cast<std::uint64_t>(b.minimum)) << "row " << r;
        }
      }
    }
  }
}

TEST_P(Pack, DequantisedRowsAreTheTilesWeights) {
  Random random(samples::seed());
  const Shape shape{GetParam(), 70, 768};
  const auto tiles = packed(shape, samples::random_blocks(random, shape));
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    std::vector<float> row(768);
    dequantise_row(shape, tiles.data(), r, row.data());
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      const auto weight = samples::tile_weight(shape.type, tile_of(shape, tiles, r, k), static_cast<int>(r % 32),
                                               static_cast<int>(k % 32));
      const double magnitude = std::fabs(weight.quant * weight.scale) + std::fabs(weight.minimum);
      ASSERT_NEAR(row[static_cast<std::size_t>(k)], weight.value(), magnitude * 0x1p-23) << r << ", " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Pack, testing::ValuesIn(samples::all_types()), samples::name_of);

// Places counted by hand from the text of layout.h; the quant is 5 (or 37 = 2*16 + 5 for Q6_K).
struct Place {
  WeightType type;
  int row, column;
  int byte, shift;            // of the low four bits (Q8_0: of the byte)
  int high_byte, high_shift;  // of Q6_K's two high bits
  int scale_byte;
};

TEST(LayoutTable, GoldenBytePositions) {
  const Place places[] = {
      {WeightType::kQ4_0, 0, 0, 0, 0, 0, 0, 512},       {WeightType::kQ4_0, 5, 10, 165, 0, 0, 0, 522},
      {WeightType::kQ4_0, 5, 11, 165, 4, 0, 0, 522},    {WeightType::kQ4_0, 31, 31, 511, 4, 0, 0, 574},
      {WeightType::kIQ4_NL, 17, 16, 273, 0, 0, 0, 546}, {WeightType::kQ4_1, 9, 3, 41, 4, 0, 0, 548},
      {WeightType::kMXFP4, 30, 29, 478, 4, 0, 0, 542},  {WeightType::kQ4_K, 1, 2, 33, 0, 0, 0, 516},
      {WeightType::kQ8_0, 3, 9, 263, 0, 0, 0, 1030},    {WeightType::kQ8_0, 31, 31, 1023, 0, 0, 0, 1086},
      {WeightType::kQ6_K, 2, 13, 137, 4, 521, 6, 772},  {WeightType::kQ6_K, 31, 30, 510, 4, 766, 6, 894},
      {WeightType::kQ6_K, 4, 16, 272, 0, 656, 0, 840},
  };
  for (const Place& place : places) {
    const Layout& entry = layout(place.type);
    SCOPED_TRACE(testing::Message() << entry.name << " row " << place.row << " column " << place.column);
    const Shape shape{place.type, 32, 256};
    std::vector<std::uint8_t> blocks(shape.block_bytes(), 0);
    std::uint8_t* row = blocks.data() + static_cast<std::size_t>(place.row) * shape.block_row_bytes();
    // The third column tile; set exactly one quant and one scale there.
    const int tile_number = 2, k = 64 + place.column;
    std::uint8_t* block = row + k / entry.block_columns * entry.block_bytes;
    int scale = 0x2c01;
    switch (place.type) {
      case WeightType::kQ4_0:
      case WeightType::kIQ4_NL:
      case WeightType::kQ4_1:
      case WeightType::kMXFP4: {
        const int quants = entry.block_bytes - 16;
        block[quants + place.column % 16] = static_cast<std::uint8_t>(5 << (place.column < 16 ? 0 : 4));
        if (place.type == WeightType::kMXFP4) {
          block[0] = 0x7b;
          scale = 0x7b;
        } else {
          samples::put_half(block, 0x2c01);
        }
        break;
      }
      case WeightType::kQ8_0:
        block[2 + place.column] = 5;
        samples::put_half(block, 0x2c01);
        break;
      case WeightType::kQ4_K:
        block[16 + 32 + place.column] = 5;  // columns 64..95: low nibbles of the second 32 bytes
        samples::put_half(block, 0x2c01);
        block[4 + 2] = 4;  // scale 4 of columns 64..95: two steps of the exponent
        scale = 0x3401;
        break;
      case WeightType::kQ6_K:
        block[place.column] = 5 << 4;  // columns 64..95: high nibbles of the first 32 bytes
        block[128 + place.column] = 2 << 4;
        samples::put_half(block + 208, 0x2c01);
        block[192 + 4 + place.column / 16] = 4;
        scale = 0x3401;
        break;
    }
    const auto tiles = packed(shape, blocks);
    const std::uint8_t* tile = tiles.data() + tile_number * entry.tile_bytes;
    const int mask = place.type == WeightType::kQ8_0 ? 255 : 15;
    EXPECT_EQ((tile[place.byte] >> place.shift) & mask, 5);
    if (place.type == WeightType::kQ6_K) {
      EXPECT_EQ((tile[place.high_byte] >> place.high_shift) & 3, 2);
    }
    if (place.type == WeightType::kMXFP4) {
      EXPECT_EQ(tile[place.scale_byte], scale);
    } else {
      EXPECT_EQ(samples::get_half(tile + place.scale_byte), scale);
    }
    // And nothing else is set in that tile, but for the sign of Q4_K's minimums (-0 * 0).
    std::size_t set = 0;
    for (int i = 0; i < entry.tile_bytes; ++i) {
      set += tile[i] != 0 && !(place.type == WeightType::kQ4_K && i >= 512 && tile[i] == 0x80);
    }
    EXPECT_EQ(set, 1 + (place.type == WeightType::kQ6_K) + (place.type == WeightType::kMXFP4 ? 1 : 2));
  }
}

TEST(LayoutTable, FieldsFillTheTileWithoutGapOrOverlap) {
  for (const Layout& entry : layouts()) {
    const int scale_bytes = entry.type == WeightType::kMXFP4 ? 1 : 2;
    EXPECT_EQ(entry.quant_bytes, entry.scale_offset) << entry.name;
    EXPECT_EQ(entry.scale_offset + 32 * entry.scale_count * scale_bytes, entry.tile_bytes) << entry.name;
  }
}

TEST(LayoutTable, TypesWithoutTilesAreRefused) {
  EXPECT_FALSE(weight_type_of(0).has_value());   // f32
  EXPECT_FALSE(weight_type_of(13).has_value());  // Q5_K
  EXPECT_FALSE(weight_type_of(0xffffffffu).has_value());
  EXPECT_EQ(weight_type_of(14), WeightType::kQ6_K);
}

TEST(PackKQuants, Q6KScalesAreTheProductToElevenBits) {
  Random random(samples::seed());
  const Shape shape{WeightType::kQ6_K, 64, 1024};
  const auto blocks = samples::random_blocks(random, shape);
  const auto tiles = packed(shape, blocks);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t k = 0; k < shape.columns; k += 16) {
      const std::uint8_t* block = blocks.data() + static_cast<std::size_t>(r) * shape.block_row_bytes() + k / 256 * 210;
      const double d = half_to_float(samples::get_half(block + 208));
      const double expected = d * static_cast<std::int8_t>(block[192 + k % 256 / 16]);
      const auto weight = samples::tile_weight(shape.type, tile_of(shape, tiles, r, k), static_cast<int>(r % 32),
                                               static_cast<int>(k % 32));
      ASSERT_LE(std::fabs(weight.scale - expected), std::fabs(expected) * 0x1p-11);
    }
  }
}

TEST(PackKQuants, Q4KScalesAndMinimumsAreTheProductsToElevenBits) {
  Random random(samples::seed());
  const Shape shape{WeightType::kQ4_K, 64, 1024};
  const auto blocks = samples::random_blocks(random, shape);
  const auto tiles = packed(shape, blocks);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t k = 0; k < shape.columns; k += 32) {
      const std::uint8_t* block = blocks.data() + static_cast<std::size_t>(r) * shape.block_row_bytes() + k / 256 * 144;
      const std::uint8_t* s = block + 4;
      const int j = static_cast<int>(k % 256 / 32);
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
      const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
      const double d = half_to_float(samples::get_half(block)), dmin = half_to_float(samples::get_half(block + 2));
      const auto weight = samples::tile_weight(shape.type, tile_of(shape, tiles, r, k), static_cast<int>(r % 32), 0);
      ASSERT_LE(std::fabs(weight.scale - d * scale), d * scale * 0x1p-11);
      ASSERT_LE(std::fabs(weight.minimum + dmin * minimum), dmin * minimum * 0x1p-11);
    }
  }
}

// Reading K-quants back chooses new block scales: off by half a step of the largest scale at most.
TEST(PackKQuants, UnpackedScalesAreWithinHalfAStep) {
  Random random(samples::seed());
  for (const WeightType type : {WeightType::kQ4_K, WeightType::kQ6_K}) {
    const Shape shape{type, 32, 512};
    const auto tiles = packed(shape, samples::random_blocks(random, shape));
    std::vector<std::uint8_t> back(shape.block_bytes());
    unpack(shape, tiles.data(), back.data(), 0, shape.rows);
    const auto again = packed(shape, back);
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      double largest[2][2] = {};
      for (const bool measure : {true, false}) {
        for (std::int64_t k = 0; k < shape.columns; k += 16) {
          const int row = static_cast<int>(r % 32), column = static_cast<int>(k % 32);
          const auto a = samples::tile_weight(type, tile_of(shape, tiles, r, k), row, column);
          const auto b = samples::tile_weight(type, tile_of(shape, again, r, k), row, column);
          double* most = largest[k / 256];
          if (measure) {
            most[0] = std::max(most[0], std::fabs(a.scale));
            most[1] = std::max(most[1], std::fabs(a.minimum));
            continue;
          }
          const double step = type == WeightType::kQ4_K ? 63 : 127;
          ASSERT_LE(std::fabs(a.scale - b.scale), most[0] * (0.5 / step + 0x1p-9)) << layout(type).name;
          ASSERT_LE(std::fabs(a.minimum - b.minimum), most[1] * (0.5 / step + 0x1p-9)) << layout(type).name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kazeia::tiles
