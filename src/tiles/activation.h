// Activations as the tile kernels read them: int8 with one f32 scale per 32 columns.
//
// The quantisation is that of upstream's Q8_0 path (scale = max|x| / 127 rounded to f16, quants rounded to nearest),
// so that a tile product and upstream's differ by summation order only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiles/layout.h"

namespace kazeia::tiles {

// The order of the 32 quants of a block. Kernels for nibble types read four columns of one parity at a time (a
// byte of a tile holds an even column in its low and the odd one in its high nibble), so their activations come
// with the columns of every group of eight as 0 2 4 6 1 3 5 7.
enum class ColumnOrder { kNatural, kEvenOdd };
ColumnOrder column_order(WeightType type);

// `tokens` rows of `blocks` * 32 columns. All memory belongs to the caller.
struct Activations {
  std::int8_t* quants;  // [tokens][quant_stride]
  float* scales;        // [tokens][blocks]
  std::int32_t* sums;   // [tokens][blocks][2]: sums of the quants of columns 0..15 and 16..31
  std::int64_t blocks;
  std::int64_t quant_stride;  // bytes

  const std::int8_t* quants_of(std::int64_t token) const { return quants + token * quant_stride; }
  const float* scales_of(std::int64_t token) const { return scales + token * blocks; }
  const std::int32_t* sums_of(std::int64_t token) const { return sums + token * blocks * 2; }

  // Bytes for `tokens` rows of `columns`, and the view on memory of that size (64-byte aligned).
  static std::size_t bytes(std::int64_t tokens, std::int64_t columns);
  static Activations on(void* memory, std::int64_t tokens, std::int64_t columns);
};

}  // namespace kazeia::tiles
