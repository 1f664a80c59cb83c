// The reference kernels: plain loops, every type, every machine. The others are tested against the same float64
// products as these.

#include <cmath>
#include <cstring>

#include "tiles/half.h"
#include "tiles/kernels.h"
#include "tiles/pack.h"

namespace kazeia::tiles {
namespace {

// Column k of a group of eight stands at kEvenOddPosition[k] (and back: see ColumnOrder).
constexpr int kEvenOddPosition[8] = {0, 4, 1, 5, 2, 6, 3, 7};

int position_of(ColumnOrder order, int column) {
  return order == ColumnOrder::kNatural ? column : (column & ~7) + kEvenOddPosition[column & 7];
}

void quantise(const float* x, std::int64_t columns, ColumnOrder order, const Activations& out, std::int64_t token) {
  std::int8_t* quants = out.quants + token * out.quant_stride;
  float* scales = out.scales + token * out.blocks;
  std::int32_t* sums = out.sums + token * out.blocks * 2;
  for (std::int64_t block = 0; block < out.blocks; ++block) {
    float values[32] = {};
    const std::int64_t left = columns - block * 32;
    std::memcpy(values, x + block * 32, static_cast<std::size_t>(left < 32 ? left : 32) * sizeof(float));
    float largest = 0;
    for (const float value : values) largest = std::fmax(largest, std::fabs(value));
    scales[block] = half_to_float(float_to_half(largest / 127.0f));
    // A scale that vanishes in half precision makes the block zero; its quants could overflow int8.
    const float inverse = scales[block] != 0 ? 127.0f / largest : 0.0f;
    sums[2 * block] = sums[2 * block + 1] = 0;
    for (int k = 0; k < 32; ++k) {
      const auto quant = static_cast<std::int8_t>(std::fmax(-128.0f, std::nearbyint(values[k] * inverse)));  // NaN, too
      quants[block * 32 + position_of(order, k)] = quant;
      sums[2 * block + k / 16] += quant;
    }
  }
}

// One row of one tile: signed weights (the scale still missing) in natural order.
struct TileRow {
  std::int32_t weights[32];
  float scale[2];  // of columns 0..15 and 16..31
  float minimum;   // added to every weight * scale
};

TileRow read_tile_row(WeightType type, const std::uint8_t* tile, int row) {
  TileRow out{};
  std::uint8_t quants[32];
  tile_row_quants(type, tile, row, quants);
  const Layout& entry = layout(type);
  const auto half_at = [&](int index) {
    std::uint16_t half;
    std::memcpy(&half, tile + entry.scale_offset + 2 * index, 2);
    return half_to_float(half);
  };
  for (int k = 0; k < 32; ++k) {
    const int q = quants[k];
    switch (type) {
      case WeightType::kQ4_0:
        out.weights[k] = q - 8;
        break;
      case WeightType::kQ6_K:
        out.weights[k] = q - 32;
        break;
      case WeightType::kQ8_0:
        out.weights[k] = static_cast<std::int8_t>(q);
        break;
      case WeightType::kIQ4_NL:
        out.weights[k] = kIq4nlValues[q];
        break;
      case WeightType::kMXFP4:
        out.weights[k] = kMxfp4Values[q];
        break;
      case WeightType::kQ4_1:
      case WeightType::kQ4_K:
        out.weights[k] = q;
        break;
    }
  }
  switch (type) {
    case WeightType::kQ6_K:
      out.scale[0] = half_at(row);
      out.scale[1] = half_at(32 + row);
      break;
    case WeightType::kQ4_1:
    case WeightType::kQ4_K:
      out.scale[0] = out.scale[1] = half_at(2 * row);
      out.minimum = half_at(2 * row + 1);
      break;
    case WeightType::kMXFP4:
      out.scale[0] = out.scale[1] = e8m0_to_half_float(tile[entry.scale_offset + row]);
      break;
    default:
      out.scale[0] = out.scale[1] = half_at(row);
  }
  return out;
}

void gemv(WeightType type, const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out) {
  const int tile_bytes = layout(type).tile_bytes;
  const ColumnOrder order = column_order(type);
  for (int row = 0; row < 32; ++row) out[row] = 0;
  for (std::int64_t block = 0; block < a.blocks; ++block, tiles += tile_bytes) {
    const std::int8_t* quants = a.quants_of(token) + block * 32;
    const float scale = a.scales_of(token)[block];
    const std::int32_t* sums = a.sums_of(token) + 2 * block;
    for (int row = 0; row < 32; ++row) {
      const TileRow w = read_tile_row(type, tiles, row);
      std::int32_t dot[2] = {0, 0};
      for (int k = 0; k < 32; ++k) dot[k / 16] += w.weights[k] * quants[position_of(order, k)];
      out[row] += scale * (w.scale[0] * static_cast<float>(dot[0]) + w.scale[1] * static_cast<float>(dot[1]) +
                           w.minimum * static_cast<float>(sums[0] + sums[1]));
    }
  }
}

std::size_t panel_bytes(WeightType type, std::int64_t blocks) {
  return static_cast<std::size_t>(blocks) * static_cast<std::size_t>(layout(type).tile_bytes);
}

void expand(WeightType type, const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel) {
  std::memcpy(panel, tiles, panel_bytes(type, blocks));
}

void gemm(WeightType type, const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count,
          float* out, std::int64_t out_stride) {
  for (std::int64_t t = 0; t < count; ++t) gemv(type, panel, a, first + t, out + t * out_stride);
}

}  // namespace

void dequantise_row(const Shape& shape, const std::uint8_t* tiles, std::int64_t row, float* out) {
  const Layout& entry = layout(shape.type);
  const std::uint8_t* tile = tiles + static_cast<std::size_t>(row / 32) * shape.row_tile_bytes();
  for (std::int64_t kt = 0; kt < shape.columns / 32; ++kt, tile += entry.tile_bytes) {
    const TileRow w = read_tile_row(shape.type, tile, static_cast<int>(row % 32));
    for (int k = 0; k < 32; ++k) {
      out[kt * 32 + k] = static_cast<float>(w.weights[k]) * w.scale[k / 16] + w.minimum;
    }
  }
}

const KernelSet& scalar_kernels() {
  static constexpr KernelSet set{"scalar", quantise, gemv, panel_bytes, expand, gemm};
  return set;
}

}  // namespace kazeia::tiles
