// Reads the tile layout of the Hexagon backend. Written from upstream's repack functions alone: it shares nothing
// with src/tiles, so that the two check each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kazeia::emulated_dsp {

inline constexpr int kTileSide = 32;
inline constexpr int kTileElements = kTileSide * kTileSide;

struct TileFormat {
  std::uint32_t type;  // ggml_type
  std::size_t tile_bytes;
};

// nullopt: the type has no tile layout.
std::optional<TileFormat> tile_format(std::uint32_t type);

// The 32x32 weights of one tile, in f32 without further rounding: out[column * 32 + row], columns along ne0.
void read_tile(std::uint32_t type, const std::uint8_t* tile, float* out);

}  // namespace kazeia::emulated_dsp
