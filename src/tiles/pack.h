// From ggml blocks to tiles and back.
#pragma once

#include <cstdint>

#include "tiles/layout.h"

namespace kazeia::tiles {

// Packs row tiles [first, last) of the matrix. `blocks` points at row 0 of the whole matrix in ggml blocks, `tiles`
// at tile 0. Padding rows get the quant that means zero and scale 0, as upstream writes them. Different ranges may
// be packed by different threads at the same time.
void pack(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* tiles, std::int64_t first, std::int64_t last);

// Packs the whole matrix with `threads` threads (at least 1).
void pack(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* tiles, int threads);

// Unpacks matrix rows [first, last) into ggml blocks at `blocks` (which receives row `first` first). For Q4_K and
// Q6_K the block scales are chosen anew from the tile's f16 scales, so quants are exact and scales close.
void unpack(const Shape& shape, const std::uint8_t* tiles, std::uint8_t* blocks, std::int64_t first, std::int64_t last);

// The quants of one row of one tile, as unsigned numbers (Q8_0: the byte of the signed quant), natural order.
void tile_row_quants(WeightType type, const std::uint8_t* tile, int row, std::uint8_t out[32]);
// The same from ggml blocks: columns [32 * column_tile, +32) of a matrix row that starts at `row_blocks`.
void block_row_quants(WeightType type, const std::uint8_t* row_blocks, std::int64_t column_tile, std::uint8_t out[32]);

}  // namespace kazeia::tiles
