// Tests only: random ggml blocks of every type that has tiles, and what one quant of a block or tile means. Written
// from the GGUF format and from the text of layout.h, on purpose without the code under test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tiles/layout.h"

namespace kazeia::tiles::samples {

using Random = std::mt19937_64;

// The same numbers in every run, unless KAZEIA_TEST_SEED asks for others; printed so that a failure can be repeated.
std::uint64_t seed();
// Rounds of a property test: `usual`, times KAZEIA_TEST_SCALE (at least one).
int rounds(int usual);
int uniform(Random& random, int low, int high);  // both included

std::vector<WeightType> all_types();
std::string name_of(const testing::TestParamInfo<WeightType>& info);

// A scale as models have them: 2^-10 .. 2^-3, either sign.
std::uint16_t random_half(Random& random);

inline void put_half(std::uint8_t* at, std::uint16_t half) {
  std::memcpy(at, &half, 2);
}
inline std::uint16_t get_half(const std::uint8_t* at) {
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  return half;
}

// All rows of `shape` in ggml blocks, with random quants and scales.
std::vector<std::uint8_t> random_blocks(Random& random, const Shape& shape);

// The unsigned quant (Q8_0: the byte) of column k of a row of blocks, and of row r and column k of a tile.
int block_quant(WeightType type, const std::uint8_t* row, std::int64_t k);
int tile_quant(WeightType type, const std::uint8_t* tile, int r, int k);

// weight = quant * scale + minimum, for row r and column k of a tile.
struct TileWeight {
  double quant = 0, scale = 0, minimum = 0;
  double value() const { return quant * scale + minimum; }
};
TileWeight tile_weight(WeightType type, const std::uint8_t* tile, int r, int k);

}  // namespace kazeia::tiles::samples
