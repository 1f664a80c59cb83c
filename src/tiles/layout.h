// The tile layouts: how the Hexagon backend keeps a quantised weight matrix, and therefore how we do.
//
// A matrix [rows, columns] of a quantised type is cut into tiles of 32 rows x 32 columns. Tiles run column tile
// by column tile: the tile of row block ct and column block kt is number ct * (columns / 32) + kt. Rows and
// columns are padded to 32. Within a tile (r = row 0..31, k = column 0..31):
//
//   nibble types   byte (k/2)*32 + r holds k even in its low and k odd in its high nibble (512 bytes), then the
//                  scales: Q4_0, IQ4_NL 32 f16; Q4_1, Q4_K 32 pairs f16 {scale, minimum}; MXFP4 32 E8M0 bytes
//   Q8_0           byte (k/2)*64 + 2*r + k%2 is the signed quant (1024 bytes), then 32 f16 scales
//   Q6_K           with g = k/4: low nibbles at (g/2)*128 + 4*r + k%4 (g even low, g odd high nibble), two high
//                  bits at 512 + (g/4)*128 + 4*r + k%4 shifted by 2*(g%4), then f16 scales [2][32], one per 16
//                  columns
//
// Q4_K and Q6_K tiles hold the product d * scale rounded to f16, so their quants are exact and their scales good
// to 2^-11; all other types keep every bit. Read from llama.cpp b11118, ggml-hexagon.cpp: the functions named
// in the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kazeia::tiles {

inline constexpr int kTileRows = 32;
inline constexpr int kTileColumns = 32;
// Upstream aligns every tensor of this layout to one HVX vector.
inline constexpr std::size_t kTileAlignment = 128;

// Values are those of ggml_type, so that the ggml side converts with a cast.
enum class WeightType : std::uint32_t {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kMXFP4 = 39,
};

struct Layout {
  WeightType type;
  std::string_view name;
  int tile_bytes;
  int quant_bytes;                     // quants fill [0, quant_bytes)
  int scale_offset;                    // scales start here
  int scale_count;                     // f16 values (bytes for MXFP4) per row of the tile
  int block_columns;                   // columns of one ggml block: 32, or 256 for K-quants
  int block_bytes;                     // bytes of one ggml block
  bool exact;                          // unpack(pack(x)) == x for every block
  std::string_view upstream_function;  // in ggml-hexagon.cpp
};

inline constexpr std::string_view kLayoutUpstreamVersion = "b11118";
// Bumped whenever a byte of any tile would change place; part of the tile cache's key.
inline constexpr std::uint32_t kLayoutVersion = 1;

std::span<const Layout> layouts();
const Layout& layout(WeightType type);
// nullopt: this ggml type has no tile layout and stays on upstream's own path.
std::optional<WeightType> weight_type_of(std::uint32_t ggml_type);

// A matrix in tiles.
struct Shape {
  WeightType type;
  std::int64_t rows;     // ggml ne1
  std::int64_t columns;  // ggml ne0

  std::int64_t row_tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  std::int64_t column_tiles() const { return (columns + kTileColumns - 1) / kTileColumns; }
  // Bytes of one row of tiles: 32 rows of the matrix.
  std::size_t row_tile_bytes() const;
  std::size_t bytes() const { return row_tile_bytes() * static_cast<std::size_t>(row_tiles()); }
  // Bytes of one row, and of the matrix, in ggml blocks.
  std::size_t block_row_bytes() const;
  std::size_t block_bytes() const { return block_row_bytes() * static_cast<std::size_t>(rows); }
};

}  // namespace kazeia::tiles
