#include "tiles/pack.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tiles/half.h"
#include "tiles/pack_fast.h"

namespace kazeia::tiles {
namespace {

std::uint16_t load_half(const std::uint8_t* p) {
  std::uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}
void store_half(std::uint8_t* p, std::uint16_t value) {
  std::memcpy(p, &value, 2);
}

// Byte offsets inside a ggml block (ggml-common.h).
constexpr int kQ4_1Quants = 4, kQ4_0Quants = 2, kMxfp4Quants = 1, kQ8_0Quants = 2;
constexpr int kQ4KMinimum = 2, kQ4KScales = 4, kQ4KQuants = 16;
constexpr int kQ6KHigh = 128, kQ6KScales = 192, kQ6KScale = 208;

int quants_offset(WeightType type) {
  switch (type) {
    case WeightType::kQ4_1:
      return kQ4_1Quants;
    case WeightType::kMXFP4:
      return kMxfp4Quants;
    case WeightType::kQ8_0:
      return kQ8_0Quants;
    default:
      return kQ4_0Quants;
  }
}

// Q4_K packs eight 6-bit scales and eight 6-bit minimums into 12 bytes.
void q4_k_scale(const std::uint8_t* packed, int sub, int& scale, int& minimum) {
  if (sub < 4) {
    scale = packed[sub] & 63;
    minimum = packed[sub + 4] & 63;
  } else {
    scale = (packed[sub + 4] & 0x0f) | ((packed[sub - 4] >> 6) << 4);
    minimum = (packed[sub + 4] >> 4) | ((packed[sub] >> 6) << 4);
  }
}

void q4_k_store_scale(std::uint8_t* packed, int sub, int scale, int minimum) {
  if (sub < 4) {
    packed[sub] = static_cast<std::uint8_t>(packed[sub] | scale);
    packed[sub + 4] = static_cast<std::uint8_t>(packed[sub + 4] | minimum);
  } else {
    packed[sub + 4] = static_cast<std::uint8_t>(packed[sub + 4] | (scale & 0x0f) | ((minimum & 0x0f) << 4));
    packed[sub - 4] = static_cast<std::uint8_t>(packed[sub - 4] | ((scale >> 4) << 6));
    packed[sub] = static_cast<std::uint8_t>(packed[sub] | ((minimum >> 4) << 6));
  }
}

void tile_store_quants(WeightType type, std::uint8_t* tile, int row, const std::uint8_t quants[32]) {
  if (type == WeightType::kQ8_0) {
    for (int k = 0; k < 32; ++k) tile[(k / 2) * 64 + 2 * row + k % 2] = quants[k];
  } else if (type == WeightType::kQ6_K) {
    for (int i = 0; i < 4; ++i) {
      for (int b = 0; b < 4; ++b) {  // groups 2i and 2i+1 share a byte
        tile[i * 128 + 4 * row + b] =
            static_cast<std::uint8_t>((quants[8 * i + b] & 15) | ((quants[8 * i + 4 + b] & 15) << 4));
      }
    }
    for (int m = 0; m < 2; ++m) {
      for (int b = 0; b < 4; ++b) {
        int high = 0;
        for (int g = 0; g < 4; ++g) high |= (quants[16 * m + 4 * g + b] >> 4) << (2 * g);
        tile[512 + m * 128 + 4 * row + b] = static_cast<std::uint8_t>(high);
      }
    }
  } else {
    for (int cp = 0; cp < 16; ++cp) {
      tile[cp * 32 + row] = static_cast<std::uint8_t>(quants[2 * cp] | (quants[2 * cp + 1] << 4));
    }
  }
}

void pack_scales(WeightType type, const std::uint8_t* row_blocks, std::int64_t column_tile, std::uint8_t* tile,
                 int row) {
  const Layout& entry = layout(type);
  std::uint8_t* scales = tile + entry.scale_offset;
  const std::uint8_t* block = row_blocks + (column_tile * 32 / entry.block_columns) * entry.block_bytes;
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
    case WeightType::kQ8_0:
      std::memcpy(scales + 2 * row, block, 2);
      break;
    case WeightType::kQ4_1:
      std::memcpy(scales + 4 * row, block, 4);
      break;
    case WeightType::kMXFP4:
      scales[row] = block[0];
      break;
    case WeightType::kQ4_K: {
      int scale = 0, minimum = 0;
      q4_k_scale(block + kQ4KScales, static_cast<int>(column_tile % 8), scale, minimum);
      const float d = half_to_float(load_half(block));
      const float dmin = half_to_float(load_half(block + kQ4KMinimum));
      store_half(scales + 4 * row, float_to_half(d * static_cast<float>(scale)));
      store_half(scales + 4 * row + 2, float_to_half(-dmin * static_cast<float>(minimum)));
      break;
    }
    case WeightType::kQ6_K: {
      const float d = half_to_float(load_half(block + kQ6KScale));
      for (int sub = 0; sub < 2; ++sub) {
        const auto scale = static_cast<std::int8_t>(block[kQ6KScales + (column_tile % 8) * 2 + sub]);
        store_half(scales + 64 * sub + 2 * row, float_to_half(d * static_cast<float>(scale)));
      }
      break;
    }
  }
}

void pack_row_tile(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* row_tile, std::int64_t row_block) {
  const Layout& entry = layout(shape.type);
  // What upstream leaves in padding rows: the quant that means zero where there is one, scale 0.
  const std::uint8_t zero =
      shape.type == WeightType::kQ4_0 || shape.type == WeightType::kIQ4_NL ? std::uint8_t{8} : std::uint8_t{0};
  const std::int64_t whole_tiles = shape.columns / 32;
  for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt) {
    std::uint8_t* tile = row_tile + kt * entry.tile_bytes;
    for (int row = 0; row < 32; ++row) {
      const std::int64_t r = row_block * 32 + row;
      std::uint8_t quants[32];
      if (r < shape.rows && kt < whole_tiles) {
        const std::uint8_t* row_blocks = blocks + r * static_cast<std::int64_t>(shape.block_row_bytes());
        block_row_quants(shape.type, row_blocks, kt, quants);
        tile_store_quants(shape.type, tile, row, quants);
        pack_scales(shape.type, row_blocks, kt, tile, row);
      } else {
        std::memset(quants, zero, sizeof quants);
        tile_store_quants(shape.type, tile, row, quants);
        const int bytes = shape.type == WeightType::kMXFP4 ? 1 : 2;
        for (int i = 0; i < entry.scale_count; ++i) {
          const int at = shape.type == WeightType::kQ6_K ? 64 * i + 2 * row : (row * entry.scale_count + i) * bytes;
          std::memset(tile + entry.scale_offset + at, 0, static_cast<std::size_t>(bytes));
        }
      }
    }
  }
}

void unpack_block_scales(const Shape& shape, const std::uint8_t* tile0, int row, std::uint8_t* block) {
  const Layout& entry = layout(shape.type);
  const auto scale_of = [&](int tile, int index) {
    const std::uint8_t* scales = tile0 + tile * entry.tile_bytes + entry.scale_offset;
    return half_to_float(
        load_half(shape.type == WeightType::kQ6_K ? scales + 64 * index + 2 * row : scales + 4 * row + 2 * index));
  };
  if (shape.type == WeightType::kQ6_K) {
    // block scale = largest |scale| / 127, so that every 8-bit scale is as fine as it can be
    float largest = 0;
    for (int s = 0; s < 16; ++s) largest = std::max(largest, std::fabs(scale_of(s / 2, s % 2)));
    const std::uint16_t d_half = float_to_half(largest / 127.0f);
    const float d = half_to_float(d_half);
    store_half(block + kQ6KScale, d_half);
    for (int s = 0; s < 16; ++s) {
      const float ratio = d != 0 ? scale_of(s / 2, s % 2) / d : 0.0f;
      block[kQ6KScales + s] =
          static_cast<std::uint8_t>(static_cast<std::int8_t>(std::clamp(std::lround(ratio), -128L, 127L)));
    }
    return;
  }
  float largest_scale = 0, largest_minimum = 0;
  for (int s = 0; s < 8; ++s) {
    largest_scale = std::max(largest_scale, scale_of(s, 0));
    largest_minimum = std::max(largest_minimum, -scale_of(s, 1));
  }
  const std::uint16_t d_half = float_to_half(largest_scale / 63.0f);
  const std::uint16_t dmin_half = float_to_half(largest_minimum / 63.0f);
  store_half(block, d_half);
  store_half(block + kQ4KMinimum, dmin_half);
  const float d = half_to_float(d_half);
  const float dmin = half_to_float(dmin_half);
  std::memset(block + kQ4KScales, 0, 12);
  for (int s = 0; s < 8; ++s) {
    const float scale = d != 0 ? scale_of(s, 0) / d : 0.0f;
    const float minimum = dmin != 0 ? -scale_of(s, 1) / dmin : 0.0f;
    q4_k_store_scale(block + kQ4KScales, s, static_cast<int>(std::clamp(std::lround(scale), 0L, 63L)),
                     static_cast<int>(std::clamp(std::lround(minimum), 0L, 63L)));
  }
}

void unpack_block_quants(WeightType type, const std::uint8_t quants[32], int sub, std::uint8_t* block) {
  switch (type) {
    case WeightType::kQ8_0:
      std::memcpy(block + kQ8_0Quants, quants, 32);
      break;
    case WeightType::kQ4_K: {
      std::uint8_t* out = block + kQ4KQuants + (sub / 2) * 32;
      for (int k = 0; k < 32; ++k) out[k] = static_cast<std::uint8_t>(out[k] | (quants[k] << (4 * (sub % 2))));
      break;
    }
    case WeightType::kQ6_K: {
      // 128 columns share 64 low bytes and 32 high bytes; quarter = which 32 of them this tile is
      const int half = sub / 4, quarter = sub % 4;
      std::uint8_t* low = block + half * 64 + (quarter % 2) * 32;
      std::uint8_t* high = block + kQ6KHigh + half * 32;
      for (int k = 0; k < 32; ++k) {
        low[k] = static_cast<std::uint8_t>(low[k] | ((quants[k] & 15) << (4 * (quarter / 2))));
        high[k] = static_cast<std::uint8_t>(high[k] | ((quants[k] >> 4) << (2 * quarter)));
      }
      break;
    }
    default: {
      std::uint8_t* out = block + quants_offset(type);
      for (int k = 0; k < 16; ++k) out[k] = static_cast<std::uint8_t>(quants[k] | (quants[k + 16] << 4));
    }
  }
}

}  // namespace

void block_row_quants(WeightType type, const std::uint8_t* row_blocks, std::int64_t column_tile, std::uint8_t out[32]) {
  const Layout& entry = layout(type);
  const std::uint8_t* block = row_blocks + (column_tile * 32 / entry.block_columns) * entry.block_bytes;
  const int sub = static_cast<int>(column_tile % 8);
  switch (type) {
    case WeightType::kQ8_0:
      std::memcpy(out, block + kQ8_0Quants, 32);
      break;
    case WeightType::kQ4_K: {
      const std::uint8_t* quants = block + kQ4KQuants + (sub / 2) * 32;
      for (int k = 0; k < 32; ++k) out[k] = static_cast<std::uint8_t>((quants[k] >> (4 * (sub % 2))) & 15);
      break;
    }
    case WeightType::kQ6_K: {
      const int half = sub / 4, quarter = sub % 4;
      const std::uint8_t* low = block + half * 64 + (quarter % 2) * 32;
      const std::uint8_t* high = block + kQ6KHigh + half * 32;
      for (int k = 0; k < 32; ++k) {
        out[k] =
            static_cast<std::uint8_t>(((low[k] >> (4 * (quarter / 2))) & 15) | (((high[k] >> (2 * quarter)) & 3) << 4));
      }
      break;
    }
    default: {
      const std::uint8_t* quants = block + quants_offset(type);
      for (int k = 0; k < 16; ++k) {
        out[k] = quants[k] & 15;
        out[k + 16] = quants[k] >> 4;
      }
    }
  }
}

void tile_row_quants(WeightType type, const std::uint8_t* tile, int row, std::uint8_t out[32]) {
  if (type == WeightType::kQ8_0) {
    for (int k = 0; k < 32; ++k) out[k] = tile[(k / 2) * 64 + 2 * row + k % 2];
  } else if (type == WeightType::kQ6_K) {
    for (int k = 0; k < 32; ++k) {
      const int g = k / 4, at = 4 * row + k % 4;
      const int low = (tile[(g / 2) * 128 + at] >> (4 * (g % 2))) & 15;
      const int high = (tile[512 + (g / 4) * 128 + at] >> (2 * (g % 4))) & 3;
      out[k] = static_cast<std::uint8_t>(low | (high << 4));
    }
  } else {
    for (int k = 0; k < 32; ++k) out[k] = (tile[(k / 2) * 32 + row] >> (4 * (k % 2))) & 15;
  }
}

void pack(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* tiles, std::int64_t first, std::int64_t last) {
  const std::size_t stride = shape.row_tile_bytes();
  for (std::int64_t i = first; i < last; ++i) {
    std::uint8_t* row_tile = tiles + static_cast<std::size_t>(i) * stride;
    if ((i + 1) * 32 > shape.rows || !pack_row_tile_fast(shape, blocks, row_tile, i)) {
      pack_row_tile(shape, blocks, row_tile, i);
    }
  }
}

void pack(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* tiles, int threads) {
  std::atomic<std::int64_t> next{0};
  const std::int64_t count = shape.row_tiles();
  const std::int64_t chunk =
      std::max<std::int64_t>(1, static_cast<std::int64_t>((256 * 1024) / shape.row_tile_bytes()));
  const auto work = [&] {
    for (;;) {
      const std::int64_t first = next.fetch_add(chunk);
      if (first >= count) return;
      pack(shape, blocks, tiles, first, std::min(first + chunk, count));
    }
  };
  // A thread costs more than a small matrix.
  const bool small = shape.bytes() < 512 * 1024;
  std::vector<std::thread> team;
  for (int i = 1; i < threads && !small; ++i) team.emplace_back(work);
  work();
  for (std::thread& member : team) member.join();
}

void unpack(const Shape& shape, const std::uint8_t* tiles, std::uint8_t* blocks, std::int64_t first,
            std::int64_t last) {
  const Layout& entry = layout(shape.type);
  const bool super_blocks = entry.block_columns == 256;
  const int tiles_per_block = entry.block_columns / 32;
  std::uint8_t* block = blocks;
  for (std::int64_t r = first; r < last; ++r) {
    const std::uint8_t* row_tile = tiles + static_cast<std::size_t>(r / 32) * shape.row_tile_bytes();
    const int row = static_cast<int>(r % 32);
    for (std::int64_t b = 0; b < shape.columns / entry.block_columns; ++b, block += entry.block_bytes) {
      const std::uint8_t* tile = row_tile + b * tiles_per_block * entry.tile_bytes;
      std::memset(block, 0, static_cast<std::size_t>(entry.block_bytes));
      for (int sub = 0; sub < tiles_per_block; ++sub) {
        std::uint8_t quants[32];
        tile_row_quants(shape.type, tile + sub * entry.tile_bytes, row, quants);
        unpack_block_quants(shape.type, quants, sub, block);
      }
      const std::uint8_t* scales = tile + entry.scale_offset;
      if (super_blocks) {
        unpack_block_scales(shape, tile, row, block);
      } else if (shape.type == WeightType::kMXFP4) {
        block[0] = scales[row];
      } else {
        const int bytes = 2 * entry.scale_count;
        std::memcpy(block, scales + row * bytes, static_cast<std::size_t>(bytes));
      }
    }
  }
}

}  // namespace kazeia::tiles
