// Packing with vector instructions, for the types that hold most of a model's bytes.
#pragma once

#include <cstdint>

#include "tiles/layout.h"

namespace kazeia::tiles {

// Packs one row of tiles whose 32 rows all exist; the same bytes as the plain code writes. False: no vector code for
// this type or machine, nothing was written.
bool pack_row_tile_fast(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* row_tile, std::int64_t row_block);

}  // namespace kazeia::tiles
