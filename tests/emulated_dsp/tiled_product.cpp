#include "emulated_dsp/tiled_product.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "emulated_dsp/counters.h"
#include "emulated_dsp/tile_reader.h"

namespace kazeia::emulated_dsp {
namespace {

// One register of 16 row sums.
using Lanes = float __attribute__((vector_size(64)));
constexpr int kLanes = 16;
// Tokens that share one pass over the weights: as many as leave all sums in registers.
#if defined(__AVX512F__)
constexpr int kTokens = 8;
#else
constexpr int kTokens = 2;
#endif
// Columns whose weights are expanded at a time (128 KB of f32, stays in the second-level cache).
constexpr std::int64_t kColumns = 1024;

struct Slice {
  const std::uint8_t* tiles;
  std::uint32_t type;
  std::size_t tile_bytes;
  std::int64_t column_tiles;
};

// Rounds to f16 and back.
void round_to_half(float* values, std::int64_t count, ggml_fp16_t* room) {
  ggml_cpu_fp32_to_fp16(values, room, count);
  ggml_cpu_fp16_to_fp32(room, values, count);
}

// sums[token][32] += expanded[k][32] * x[token][k] for k in [0, columns).
template <int kCount>
void accumulate(const float* expanded, const float* x, std::int64_t x_stride, std::int64_t columns, float* sums) {
  // Element by element, so that the compiler keeps them in registers.
  Lanes sum[kCount][2];
#pragma GCC unroll 8
  for (int token = 0; token < kCount; ++token) {
    std::memcpy(&sum[token][0], sums + token * kTileSide, sizeof(Lanes));
    std::memcpy(&sum[token][1], sums + token * kTileSide + kLanes, sizeof(Lanes));
  }
  for (std::int64_t k = 0; k < columns; ++k) {
    Lanes left;
    Lanes right;
    std::memcpy(&left, expanded + k * kTileSide, sizeof(Lanes));
    std::memcpy(&right, expanded + k * kTileSide + kLanes, sizeof(Lanes));
#pragma GCC unroll 8
    for (int token = 0; token < kCount; ++token) {
      const float value = x[token * x_stride + k];
      sum[token][0] += left * value;
      sum[token][1] += right * value;
    }
  }
#pragma GCC unroll 8
  for (int token = 0; token < kCount; ++token) {
    std::memcpy(sums + token * kTileSide, &sum[token][0], sizeof(Lanes));
    std::memcpy(sums + token * kTileSide + kLanes, &sum[token][1], sizeof(Lanes));
  }
}

// Activation rows of one slice, rounded to f16 and padded with zeros to whole tiles.
struct Activations {
  std::vector<float> values;
  std::int64_t stride = 0;
  std::int64_t tokens = 0;
};

void append_rows(const Tensor& tensor, std::int64_t i2, std::int64_t i3, Activations& out) {
  std::vector<ggml_fp16_t> half(static_cast<std::size_t>(out.stride));
  for (std::int64_t i1 = 0; i1 < tensor.ne[1]; ++i1) {
    const std::uint8_t* row = tensor.row(i1, i2, i3);
    float* target = out.values.data() + out.tokens++ * out.stride;
    if (tensor.type == GGML_TYPE_F16) {
      ggml_cpu_fp16_to_fp32(reinterpret_cast<const ggml_fp16_t*>(row), target, tensor.ne[0]);
    } else {
      std::memcpy(target, row, static_cast<std::size_t>(tensor.ne[0]) * sizeof(float));
      round_to_half(target, tensor.ne[0], half.data());
    }
  }
}

// Called with the sums of 32 rows for one token.
template <typename Store>
void multiply_slice(const Slice& slice, std::int64_t row_tiles, const Activations& x, int threads, const Store& store) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    std::vector<float> expanded(static_cast<std::size_t>(kColumns * kTileSide));
    std::vector<float> sums(static_cast<std::size_t>(x.tokens * kTileSide));
    std::array<ggml_fp16_t, kTileElements> half;
    const std::int64_t tiles_per_pass = kColumns / kTileSide;
    for (std::int64_t row_tile = next++; row_tile < row_tiles; row_tile = next++) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (std::int64_t first = 0; first < slice.column_tiles; first += tiles_per_pass) {
        const std::int64_t count = std::min(tiles_per_pass, slice.column_tiles - first);
        for (std::int64_t i = 0; i < count; ++i) {
          float* target = expanded.data() + i * kTileElements;
          const auto number = static_cast<std::size_t>(row_tile * slice.column_tiles + first + i);
          read_tile(slice.type, slice.tiles + number * slice.tile_bytes, target);
          round_to_half(target, kTileElements, half.data());
        }
        const float* columns = x.values.data() + first * kTileSide;
        std::int64_t token = 0;
        for (; token + kTokens <= x.tokens; token += kTokens) {
          accumulate<kTokens>(expanded.data(), columns + token * x.stride, x.stride, count * kTileSide,
                              sums.data() + token * kTileSide);
        }
        for (; token < x.tokens; ++token) {
          accumulate<1>(expanded.data(), columns + token * x.stride, x.stride, count * kTileSide,
                        sums.data() + token * kTileSide);
        }
      }
      for (std::int64_t token = 0; token < x.tokens; ++token) {
        store(row_tile, token, sums.data() + token * kTileSide);
      }
    }
  };
  std::vector<std::thread> team;
  for (int i = 1; i < threads && i < row_tiles; ++i) team.emplace_back(work);
  work();
  for (std::thread& member : team) member.join();
  counters().weight_bytes_read +=
      static_cast<std::uint64_t>(row_tiles * slice.column_tiles) * static_cast<std::uint64_t>(slice.tile_bytes);
}

}  // namespace

void multiply_tiles(const Tensor& weights, const Tensor& activations, const Tensor* addend, const Tensor& dst,
                    int threads) {
  const std::size_t tile_bytes = tile_format(weights.type)->tile_bytes;
  const std::int64_t row_tiles = weights.ne[1] / kTileSide;
  const std::int64_t column_tiles = weights.ne[0] / kTileSide;
  const std::int64_t repeat2 = activations.ne[2] / weights.ne[2];
  const std::int64_t repeat3 = activations.ne[3] / weights.ne[3];
  const bool one_matrix = weights.ne[2] == 1 && weights.ne[3] == 1;

  // With one weight matrix every activation row is a token of one product.
  const std::int64_t slices = one_matrix ? 1 : activations.ne[2] * activations.ne[3];
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    const std::int64_t s2 = slice % activations.ne[2];
    const std::int64_t s3 = slice / activations.ne[2];
    Activations x;
    x.stride = weights.ne[0];
    x.values.resize(static_cast<std::size_t>((one_matrix ? activations.rows() : activations.ne[1]) * x.stride));
    if (one_matrix) {
      for (std::int64_t i3 = 0; i3 < activations.ne[3]; ++i3) {
        for (std::int64_t i2 = 0; i2 < activations.ne[2]; ++i2) append_rows(activations, i2, i3, x);
      }
    } else {
      append_rows(activations, s2, s3, x);
    }
    const Slice matrix{weights.row(0, s2 / repeat2, s3 / repeat3), weights.type, tile_bytes, column_tiles};
    multiply_slice(matrix, row_tiles, x, threads, [&](std::int64_t row_tile, std::int64_t token, const float* sums) {
      const std::int64_t i1 = token % activations.ne[1];
      const std::int64_t i2 = one_matrix ? token / activations.ne[1] % activations.ne[2] : s2;
      const std::int64_t i3 = one_matrix ? token / activations.ne[1] / activations.ne[2] : s3;
      const std::int64_t first = row_tile * kTileSide;
      const std::int64_t count = std::min<std::int64_t>(kTileSide, dst.ne[0] - first);
      float* target = reinterpret_cast<float*>(dst.row(i1, i2, i3)) + first;
      if (addend == nullptr) {
        std::memcpy(target, sums, static_cast<std::size_t>(count) * sizeof(float));
        return;
      }
      const auto* more =
          reinterpret_cast<const float*>(addend->row(i1 % addend->ne[1], i2 % addend->ne[2], i3 % addend->ne[3]));
      for (std::int64_t row = 0; row < count; ++row) {
        target[row] = sums[row] + (addend->ne[0] == 1 ? more[0] : more[first + row]);
      }
    });
  }
}

}  // namespace kazeia::emulated_dsp
