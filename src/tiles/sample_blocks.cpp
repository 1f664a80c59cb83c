#include "tiles/sample_blocks.h"

#include <cmath>
#include <cstdlib>
#include <iostream>

#include "tiles/half.h"

namespace kazeia::tiles::samples {

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* wanted = std::getenv("KAZEIA_TEST_SEED");
    const std::uint64_t chosen = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20250729;
    std::cout << "KAZEIA_TEST_SEED=" << chosen << '\n';
    return chosen;
  }();
  return value;
}

int rounds(int usual) {
  const char* scale = std::getenv("KAZEIA_TEST_SCALE");
  const double wanted = scale != nullptr ? std::strtod(scale, nullptr) * usual : usual;
  return wanted < 1 ? 1 : static_cast<int>(wanted);
}

int uniform(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

std::string name_of(const testing::TestParamInfo<WeightType>& info) {
  return std::string(layout(info.param).name);
}

std::vector<WeightType> all_types() {
  std::vector<WeightType> types;
  for (const Layout& entry : layouts()) types.push_back(entry.type);
  return types;
}

std::uint16_t random_half(Random& random) {
  return static_cast<std::uint16_t>(uniform(random, 5, 12) << 10 | uniform(random, 0, 1023) |
                                    uniform(random, 0, 1) << 15);
}

std::vector<std::uint8_t> random_blocks(Random& random, const Shape& shape) {
  std::vector<std::uint8_t> bytes(shape.block_bytes());
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  const auto size = static_cast<std::size_t>(layout(shape.type).block_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    std::uint8_t* block = bytes.data() + at;
    switch (shape.type) {
      case WeightType::kQ4_0:
      case WeightType::kIQ4_NL:
      case WeightType::kQ8_0:
        put_half(block, random_half(random));
        break;
      case WeightType::kQ4_1:
        put_half(block, random_half(random));
        put_half(block + 2, random_half(random));
        break;
      case WeightType::kQ4_K:  // upstream's quantiser writes no negative scale
        put_half(block, random_half(random) & 0x7fff);
        put_half(block + 2, random_half(random) & 0x7fff);
        break;
      case WeightType::kQ6_K:
        put_half(block + 208, random_half(random));
        break;
      case WeightType::kMXFP4:
        block[0] = static_cast<std::uint8_t>(uniform(random, 115, 130));
        break;
    }
  }
  return bytes;
}

// The unsigned quant of column k of a row of blocks (Q8_0: the byte), from the block formats of GGUF.
int block_quant(WeightType type, const std::uint8_t* row, std::int64_t k) {
  const auto nibble = [](const std::uint8_t* quants, std::int64_t i) {
    return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
  };
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
      return nibble(row + k / 32 * 18 + 2, k % 32);
    case WeightType::kQ4_1:
      return nibble(row + k / 32 * 20 + 4, k % 32);
    case WeightType::kMXFP4:
      return nibble(row + k / 32 * 17 + 1, k % 32);
    case WeightType::kQ8_0:
      return row[k / 32 * 34 + 2 + k % 32];
    case WeightType::kQ4_K: {
      const std::uint8_t* quants = row + k / 256 * 144 + 16;
      const std::int64_t i = k % 256;  // 64 columns share 32 bytes
      return (quants[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4)) & 15;
    }
    case WeightType::kQ6_K: {
      const std::uint8_t* block = row + k / 256 * 210;
      const std::int64_t half = k % 256 / 128, i = k % 128;  // 128 columns share 64 low and 32 high bytes
      const int low = (block[half * 64 + i % 64] >> (i < 64 ? 0 : 4)) & 15;
      const int high = (block[128 + half * 32 + i % 32] >> (2 * (i / 32))) & 3;
      return low | high << 4;
    }
  }
  return -1;
}

// The same quant in a tile, from the text of layout.h.
int tile_quant(WeightType type, const std::uint8_t* tile, int r, int k) {
  if (type == WeightType::kQ8_0) return tile[k / 2 * 64 + 2 * r + k % 2];
  if (type == WeightType::kQ6_K) {
    const int g = k / 4;
    const int low = (tile[g / 2 * 128 + 4 * r + k % 4] >> (g % 2 == 0 ? 0 : 4)) & 15;
    const int high = (tile[512 + g / 4 * 128 + 4 * r + k % 4] >> (2 * (g % 4))) & 3;
    return low | high << 4;
  }
  return (tile[k / 2 * 32 + r] >> (k % 2 == 0 ? 0 : 4)) & 15;
}

TileWeight tile_weight(WeightType type, const std::uint8_t* tile, int r, int k) {
  const int q = tile_quant(type, tile, r, k);
  const auto half = [&](int at) { return static_cast<double>(half_to_float(get_half(tile + at))); };
  switch (type) {
    case WeightType::kQ4_0:
      return {q - 8.0, half(512 + 2 * r), 0};
    case WeightType::kIQ4_NL:
      return {static_cast<double>(kIq4nlValues[q]), half(512 + 2 * r), 0};
    case WeightType::kQ4_1:
    case WeightType::kQ4_K:
      return {static_cast<double>(q), half(512 + 4 * r), half(512 + 4 * r + 2)};
    case WeightType::kMXFP4:
      return {static_cast<double>(kMxfp4Values[q]), std::ldexp(1.0, tile[512 + r] - 128), 0};
    case WeightType::kQ8_0:
      return {static_cast<double>(static_cast<std::int8_t>(static_cast<std::uint8_t>(q))), half(1024 + 2 * r), 0};
    case WeightType::kQ6_K:
      return {q - 32.0, half(768 + k / 16 * 64 + 2 * r), 0};
  }
  return {};
}

}  // namespace kazeia::tiles::samples
