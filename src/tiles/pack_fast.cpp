// Written once for every machine in the compilers' vector extensions: 16-byte vectors, of which SSE2 and NEON have all
// operations used here (and, or, shift, interleave), so that there is nothing to detect at run time.
#include "tiles/pack_fast.h"

#include <cstring>

#include "tiles/half.h"

namespace kazeia::tiles {
namespace {

using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Words = std::uint16_t __attribute__((vector_size(16)));
using Lanes = std::uint32_t __attribute__((vector_size(16)));

Bytes load(const std::uint8_t* p) {
  Bytes value;
  std::memcpy(&value, p, 16);
  return value;
}
template <class Vector>
void store(std::uint8_t* p, Vector value) {
  std::memcpy(p, &value, 16);
}

Bytes zip_low(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Bytes zip_high(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
Words zip_low(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Words zip_high(Words a, Words b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
Lanes zip_low(Lanes a, Lanes b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
Lanes zip_high(Lanes a, Lanes b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

// Transposes `count` vectors of `count` elements: log2(count) rounds, each interleaving vector i with i + count / 2.
template <class Vector, int count>
void transpose(Vector (&rows)[count]) {
  static_assert(sizeof(Vector) / sizeof(rows[0][0]) == count);
  for (int round = 1; round < count; round *= 2) {
    Vector next[count];
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i) {
      next[2 * i] = zip_low(rows[i], rows[i + count / 2]);
      next[2 * i + 1] = zip_high(rows[i], rows[i + count / 2]);
    }
    std::memcpy(&rows, &next, sizeof rows);
  }
}

// The source of the next row of tiles is fetched while this one is packed: 32 rows with a stride of kilobytes are
// more streams than a hardware prefetcher follows.
void prefetch(const std::uint8_t* p, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(p + at, 0, 2);
}

// Two neighbouring columns a word, one a byte -> even column in the low, odd column in the high nibble of the word's
// low byte; from the low nibbles and from the high nibbles of the bytes.
Words low_nibbles(Words pairs) {
  return (pairs & 0x000f) | ((pairs >> 4) & 0x00f0);
}
Words high_nibbles(Words pairs) {
  return ((pairs >> 4) & 0x000f) | ((pairs >> 8) & 0x00f0);
}

Bytes narrow(Words a, Words b) {  // the low bytes of both
  return __builtin_shufflevector(reinterpret_cast<Bytes>(a), reinterpret_cast<Bytes>(b), 0, 2, 4, 6, 8, 10, 12, 14, 16,
                                 18, 20, 22, 24, 26, 28, 30);
}

// 16 rows x 16 column pairs of a nibble tile.
void store_nibbles(Bytes (&rows)[16], std::uint8_t* tile, int first_row) {
  transpose(rows);
  for (int cp = 0; cp < 16; ++cp) store(tile + 32 * cp + first_row, rows[cp]);
}

// Types of 32-column blocks: scale bytes, then 16 bytes with columns 0..15 in the low and 16..31 in the high nibbles.
template <int scale_bytes>
void pack_nibbles(const Shape& shape, const std::uint8_t* first, std::uint8_t* tile) {
  constexpr int kBlockBytes = scale_bytes + 16;
  const auto stride = static_cast<std::int64_t>(shape.block_row_bytes());
  for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt, tile += 512 + 32 * scale_bytes, first += kBlockBytes) {
    prefetch(first + 32 * stride + kt * 31 * kBlockBytes, 32 * kBlockBytes);
    for (int sixteen = 0; sixteen < 32; sixteen += 16) {
      Bytes rows[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const std::uint8_t* block = first + (sixteen + r) * stride;
        const auto pairs = reinterpret_cast<Words>(load(block + scale_bytes));
        rows[r] = narrow(low_nibbles(pairs), high_nibbles(pairs));
        std::memcpy(tile + 512 + (sixteen + r) * scale_bytes, block, scale_bytes);
      }
      store_nibbles(rows, tile, sixteen);
    }
  }
}

void pack_q8_0(const Shape& shape, const std::uint8_t* first, std::uint8_t* tile) {
  const auto stride = static_cast<std::int64_t>(shape.block_row_bytes());
  for (std::int64_t kt = 0; kt < shape.column_tiles(); ++kt, tile += 1088, first += 34) {
    prefetch(first + 32 * stride + kt * 31 * 34, 32 * 34);
    for (int eight = 0; eight < 32; eight += 8) {
      for (int half = 0; half < 2; ++half) {
        Words rows[8];
#pragma GCC unroll 8
        for (int r = 0; r < 8; ++r) {
          rows[r] = reinterpret_cast<Words>(load(first + (eight + r) * stride + 2 + 16 * half));
        }
        transpose(rows);
        for (int cp = 0; cp < 8; ++cp) store(tile + 64 * (8 * half + cp) + 2 * eight, rows[cp]);
      }
    }
    for (int r = 0; r < 32; ++r) std::memcpy(tile + 1024 + 2 * r, first + r * stride, 2);
  }
}

// float_to_half of four numbers, without branches; the same bits.
Words to_halves(const float* values) {
  using Floats = float __attribute__((vector_size(16)));
  using Signed = std::int32_t __attribute__((vector_size(16)));
  const auto select = [](Signed mask, Lanes yes, Lanes no) {
    return (reinterpret_cast<Lanes>(mask) & yes) | (~reinterpret_cast<Lanes>(mask) & no);
  };
  Lanes bits;
  std::memcpy(&bits, values, 16);
  const Lanes sign = (bits >> 16) & 0x8000u;
  const Lanes magnitude = bits & 0x7fffffffu;
  const auto ordered = reinterpret_cast<Signed>(magnitude);  // non-negative: signed compares are right, and in SSE2
  const Lanes rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Floats shifted = reinterpret_cast<Floats>(magnitude) + 0.5f;
  Lanes half = select(ordered < 0x38800000, reinterpret_cast<Lanes>(shifted) - 0x3f000000u, rounded);
  half = select(ordered >= 0x477ff000, Lanes{} + 0x7c00u, half);
  half = select(ordered > 0x7f800000, Lanes{} + 0x7e00u, half);
  half |= sign;
  return __builtin_shufflevector(reinterpret_cast<Words>(half), reinterpret_cast<Words>(half), 0, 2, 4, 6, 0, 2, 4, 6);
}

std::uint16_t half_at(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  return half;
}

// Where the scale (and minimum) of a row and tile of a super-block goes: `count` f16 values a row from `values`.
void store_halves(const float* values, int count, std::uint16_t* out) {
  for (int i = 0; i < count; i += 4) {
    const Words halves = to_halves(values + i);
    std::memcpy(out + i, &halves, 8);
  }
}

void pack_q4_k(const Shape& shape, const std::uint8_t* first, std::uint8_t* tiles) {
  constexpr int kBlockBytes = 144, kTileBytes = 640;
  const auto stride = static_cast<std::int64_t>(shape.block_row_bytes());
  for (std::int64_t s = 0; s < shape.columns / 256; ++s, tiles += 8 * kTileBytes, first += kBlockBytes) {
    prefetch(first + 32 * stride + s * 31 * kBlockBytes, 32 * kBlockBytes);
    for (int pair = 0; pair < 4; ++pair) {  // two tiles share 32 bytes a row
      for (int sixteen = 0; sixteen < 32; sixteen += 16) {
        Bytes low[16], high[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) {
          const std::uint8_t* quants = first + (sixteen + r) * stride + 16 + 32 * pair;
          const auto a = reinterpret_cast<Words>(load(quants)), b = reinterpret_cast<Words>(load(quants + 16));
          low[r] = narrow(low_nibbles(a), low_nibbles(b));
          high[r] = narrow(high_nibbles(a), high_nibbles(b));
        }
        store_nibbles(low, tiles + 2 * pair * kTileBytes, sixteen);
        store_nibbles(high, tiles + (2 * pair + 1) * kTileBytes, sixteen);
      }
    }
    for (int r = 0; r < 32; ++r) {
      const std::uint8_t* block = first + r * stride;
      const std::uint8_t* packed = block + 4;
      const float d = half_to_float(half_at(block)), minimum = half_to_float(half_at(block + 2));
      float values[16];  // {scale, minimum} of the eight tiles
      for (int i = 0; i < 4; ++i) {
        values[2 * i] = d * static_cast<float>(packed[i] & 63);
        values[2 * i + 1] = -minimum * static_cast<float>(packed[4 + i] & 63);
        values[8 + 2 * i] = d * static_cast<float>((packed[8 + i] & 15) | (packed[i] >> 6 << 4));
        values[8 + 2 * i + 1] = -minimum * static_cast<float>((packed[8 + i] >> 4) | (packed[4 + i] >> 6 << 4));
      }
      std::uint16_t halves[16];
      store_halves(values, 16, halves);
      for (int i = 0; i < 8; ++i) std::memcpy(tiles + i * kTileBytes + 512 + 4 * r, halves + 2 * i, 4);
    }
  }
}

// Four rows of one 32-column tile of Q6_K; `low` has the row's nibbles in the low half of every byte, `high` its
// two-bit parts in the low bits, 16 columns a vector.
void store_q6_k(const Bytes (&low)[4][2], const Bytes (&high)[4][2], std::uint8_t* tile, int first_row) {
  for (int m = 0; m < 2; ++m) {  // columns 16m..
    // Four columns a lane; the nibbles of lanes 0 and 1 (2 and 3) share a byte. Rows as columns after the interleaves.
    Lanes lanes[4], bits[4];
    for (int r = 0; r < 4; ++r) {
      lanes[r] = reinterpret_cast<Lanes>(low[r][m]);
      bits[r] = reinterpret_cast<Lanes>(high[r][m]);
    }
    transpose(lanes);
    transpose(bits);
    store(tile + 128 * (2 * m) + 4 * first_row, lanes[0] | (lanes[1] << 4));
    store(tile + 128 * (2 * m + 1) + 4 * first_row, lanes[2] | (lanes[3] << 4));
    store(tile + 512 + 128 * m + 4 * first_row, bits[0] | (bits[1] << 2) | (bits[2] << 4) | (bits[3] << 6));
  }
}

void pack_q6_k(const Shape& shape, const std::uint8_t* first, std::uint8_t* tiles) {
  constexpr int kBlockBytes = 210, kTileBytes = 896;
  const auto stride = static_cast<std::int64_t>(shape.block_row_bytes());
  for (std::int64_t s = 0; s < shape.columns / 256; ++s, tiles += 8 * kTileBytes, first += kBlockBytes) {
    prefetch(first + 32 * stride + s * 31 * kBlockBytes, 32 * kBlockBytes);
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 4
      for (int quarter = 0; quarter < 4; ++quarter) {
        std::uint8_t* tile = tiles + (4 * half + quarter) * kTileBytes;
        for (int four = 0; four < 32; four += 4) {
          Bytes low[4][2], high[4][2];
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r) {
            const std::uint8_t* block = first + (four + r) * stride;
            for (int m = 0; m < 2; ++m) {
              // Shifts by word: what comes in from the neighbour byte is masked off.
              const auto nibbles = reinterpret_cast<Words>(load(block + 64 * half + 32 * (quarter % 2) + 16 * m));
              const auto bits = reinterpret_cast<Words>(load(block + 128 + 32 * half + 16 * m));
              low[r][m] = reinterpret_cast<Bytes>((nibbles >> (4 * (quarter / 2))) & 0x0f0f);
              high[r][m] = reinterpret_cast<Bytes>((bits >> (2 * quarter)) & 0x0303);
            }
          }
          store_q6_k(low, high, tile, four);
        }
      }
    }
    for (int r = 0; r < 32; ++r) {
      const std::uint8_t* block = first + r * stride;
      const float d = half_to_float(half_at(block + 208));
      float values[16];
      for (int i = 0; i < 16; ++i) values[i] = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i]));
      std::uint16_t halves[16];
      store_halves(values, 16, halves);
      for (int i = 0; i < 16; ++i) {
        std::memcpy(tiles + i / 2 * kTileBytes + 768 + 64 * (i % 2) + 2 * r, halves + i, 2);
      }
    }
  }
}

}  // namespace

bool pack_row_tile_fast(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* row_tile,
                        std::int64_t row_block) {
  const std::uint8_t* first = blocks + row_block * 32 * static_cast<std::int64_t>(shape.block_row_bytes());
  if (shape.columns % layout(shape.type).block_columns != 0) return false;
  switch (shape.type) {
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
      pack_nibbles<2>(shape, first, row_tile);
      return true;
    case WeightType::kQ4_1:
      pack_nibbles<4>(shape, first, row_tile);
      return true;
    case WeightType::kMXFP4:
      pack_nibbles<1>(shape, first, row_tile);
      return true;
    case WeightType::kQ8_0:
      pack_q8_0(shape, first, row_tile);
      return true;
    case WeightType::kQ4_K:
      pack_q4_k(shape, first, row_tile);
      return true;
    case WeightType::kQ6_K:
      pack_q6_k(shape, first, row_tile);
      return true;
  }
  return false;
}

}  // namespace kazeia::tiles
