#include "emulated_dsp/tile_reader.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <cmath>
#include <cstring>

namespace kazeia::emulated_dsp {
namespace {

constexpr std::size_t kNibbleBytes = kTileElements / 2;

constexpr std::array<TileFormat, 7> kFormats{{
    {GGML_TYPE_Q4_0, kNibbleBytes + 32 * 2},
    {GGML_TYPE_Q4_1, kNibbleBytes + 32 * 4},
    {GGML_TYPE_Q8_0, kTileElements + 32 * 2},
    {GGML_TYPE_Q4_K, kNibbleBytes + 32 * 4},
    {GGML_TYPE_Q6_K, kNibbleBytes + kNibbleBytes / 2 + 2 * 32 * 2},
    {GGML_TYPE_IQ4_NL, kNibbleBytes + 32 * 2},
    {GGML_TYPE_MXFP4, kNibbleBytes + 32},
}};

// The sixteen values of the two table types: IQ4_NL's levels, and the E2M1 numbers of MXFP4.
constexpr std::array<float, 16> kIq4Levels{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::array<float, 16> kE2M1{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

template <std::size_t N>
std::array<float, N> halves(const std::uint8_t* bytes) {
  std::array<ggml_fp16_t, N> raw;
  std::memcpy(raw.data(), bytes, sizeof(raw));
  std::array<float, N> values;
  ggml_cpu_fp16_to_fp32(raw.data(), values.data(), N);
  return values;
}

// Nibble planes: byte p*32 + row holds columns 2p (low) and 2p + 1 (high) of that row.
template <typename Value>
void read_nibbles(const std::uint8_t* tile, float* out, const Value& value) {
  for (int pair = 0; pair < kTileSide / 2; ++pair) {
    const std::uint8_t* bytes = tile + pair * kTileSide;
    float* even = out + 2 * pair * kTileSide;
    float* odd = even + kTileSide;
    for (int row = 0; row < kTileSide; ++row) {
      even[row] = value(bytes[row] & 15, row);
      odd[row] = value(bytes[row] >> 4, row);
    }
  }
}

void read_q4_0(const std::uint8_t* tile, float* out) {
  const auto scale = halves<32>(tile + kNibbleBytes);
  read_nibbles(tile, out, [&](int quant, int row) { return static_cast<float>(quant - 8) * scale[row]; });
}

// Q4_K tiles look the same: upstream expands its block scales into one scale and one (negative) minimum per row.
void read_q4_1(const std::uint8_t* tile, float* out) {
  const auto pairs = halves<64>(tile + kNibbleBytes);
  std::array<float, 32> scale;
  std::array<float, 32> offset;
  for (std::size_t row = 0; row < 32; ++row) {
    scale[row] = pairs[2 * row];
    offset[row] = pairs[2 * row + 1];
  }
  read_nibbles(tile, out, [&](int quant, int row) { return static_cast<float>(quant) * scale[row] + offset[row]; });
}

void read_iq4_nl(const std::uint8_t* tile, float* out) {
  const auto scale = halves<32>(tile + kNibbleBytes);
  read_nibbles(tile, out, [&](int quant, int row) { return kIq4Levels[quant] * scale[row]; });
}

void read_mxfp4(const std::uint8_t* tile, float* out) {
  std::array<float, 32> scale;
  for (std::size_t row = 0; row < 32; ++row) scale[row] = std::ldexp(1.0F, tile[kNibbleBytes + row] - 127);
  read_nibbles(tile, out, [&](int quant, int row) { return kE2M1[quant] * scale[row]; });
}

// Two signed bytes of a row lie next to each other: 64 bytes per pair of columns.
void read_q8_0(const std::uint8_t* tile, float* out) {
  const auto scale = halves<32>(tile + kTileElements);
  for (int column = 0; column < kTileSide; ++column) {
    const std::uint8_t* bytes = tile + column / 2 * 64 + column % 2;
    for (int row = 0; row < kTileSide; ++row) {
      out[column * kTileSide + row] = static_cast<float>(static_cast<std::int8_t>(bytes[2 * row])) * scale[row];
    }
  }
}

// Groups of four columns: 128 bytes hold two groups' low nibbles, and further up four groups' high pairs of bits.
void read_q6_k(const std::uint8_t* tile, float* out) {
  const std::uint8_t* const high_plane = tile + kNibbleBytes;
  const auto scale = halves<64>(high_plane + kNibbleBytes / 2);
  for (int column = 0; column < kTileSide; ++column) {
    const int group = column / 4;
    const std::uint8_t* low = tile + group / 2 * 128 + column % 4;
    const std::uint8_t* high = high_plane + group / 4 * 128 + column % 4;
    const int low_shift = group % 2 * 4;
    const int high_shift = group % 4 * 2;
    const float* scales = scale.data() + column / 16 * 32;
    for (int row = 0; row < kTileSide; ++row) {
      const int quant = ((low[4 * row] >> low_shift) & 15) | (((high[4 * row] >> high_shift) & 3) << 4);
      out[column * kTileSide + row] = static_cast<float>(quant - 32) * scales[row];
    }
  }
}

}  // namespace

std::optional<TileFormat> tile_format(std::uint32_t type) {
  for (const TileFormat& format : kFormats) {
    if (format.type == type) return format;
  }
  return std::nullopt;
}

void read_tile(std::uint32_t type, const std::uint8_t* tile, float* out) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return read_q4_0(tile, out);
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q4_K:
      return read_q4_1(tile, out);
    case GGML_TYPE_Q8_0:
      return read_q8_0(tile, out);
    case GGML_TYPE_Q6_K:
      return read_q6_k(tile, out);
    case GGML_TYPE_IQ4_NL:
      return read_iq4_nl(tile, out);
    case GGML_TYPE_MXFP4:
      return read_mxfp4(tile, out);
    default:
      break;
  }
}

}  // namespace kazeia::emulated_dsp
