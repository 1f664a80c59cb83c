#include "tiles/operators.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "ggml-backend.h"
#include "ggml-cpu/ggml-cpu-impl.h"
#include "ggml.h"
#include "tiles/activation.h"
#include "tiles/kernels.h"
#include "tiles/layout.h"
#include "tiles/schedule.h"

namespace kazeia::tiles {
namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Shape shape_of(const ggml_tensor* weights) {
  return Shape{*weight_type_of(static_cast<std::uint32_t>(weights->type)), weights->ne[1], weights->ne[0]};
}

// ggml tensors of up to four dimensions as rows: row i of [ne0, ne1, ne2, ne3].
std::byte* row_of(const ggml_tensor* tensor, std::int64_t i) {
  const std::int64_t i1 = i % tensor->ne[1];
  const std::int64_t i2 = i / tensor->ne[1] % tensor->ne[2];
  const std::int64_t i3 = i / (tensor->ne[1] * tensor->ne[2]);
  return static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(i1) * tensor->nb[1] +
         static_cast<std::size_t>(i2) * tensor->nb[2] + static_cast<std::size_t>(i3) * tensor->nb[3];
}

// Where a product's scratch memory lies: activations of all tokens, then one expanded panel per thread.
struct Scratch {
  std::size_t activations;
  std::size_t panel;

  Scratch(const Shape& shape, std::int64_t tokens)
      : activations(round_up(Activations::bytes(tokens, shape.columns), 64)),
        panel(tokens == 1 ? 0 : round_up(kernels().panel_bytes(shape.type, shape.column_tiles()), 64)) {}
  std::size_t bytes(int threads) const { return 64 + activations + panel * static_cast<std::size_t>(threads); }
};

std::byte* align64(void* p) {
  return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(p), 64));
}

// One token: each row tile is read once, straight from its nibbles.
void multiply_one(const ggml_compute_params* params, const Shape& shape, const std::uint8_t* tiles,
                  const Activations& a, float* out) {
  const KernelSet& kernel = kernels();
  // About 64 KB: long enough to hide the start of a stream, short enough to finish together.
  const auto smallest = static_cast<std::int64_t>(64 * 1024 / shape.row_tile_bytes());
  Pieces pieces(shape.row_tiles(), params->nth, smallest);
  for (std::int64_t number = params->ith;; number = ggml_threadpool_chunk_add(params->threadpool, 1)) {
    const auto [first, last] = pieces.piece(number);
    if (first == last) return;
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint8_t* row_tile = tiles + static_cast<std::size_t>(i) * shape.row_tile_bytes();
      const std::int64_t rows = std::min<std::int64_t>(32, shape.rows - i * 32);
      if (rows == 32) {
        kernel.gemv(shape.type, row_tile, a, 0, out + i * 32);
      } else {
        float whole[32];
        kernel.gemv(shape.type, row_tile, a, 0, whole);
        std::copy_n(whole, rows, out + i * 32);
      }
    }
  }
}

// Many tokens: a row tile is expanded once and multiplied with all tokens of a block. Few row tiles (the 32-row gates
// of a recurrent layer) are shared out by token blocks instead, at the price of expanding them more than once.
void multiply_many(const ggml_compute_params* params, const Shape& shape, const std::uint8_t* tiles,
                   const Activations& a, std::int64_t tokens, std::uint8_t* panel, float* out,
                   std::int64_t out_stride) {
  const KernelSet& kernel = kernels();
  std::int64_t token_blocks = 1;
  while (shape.row_tiles() * token_blocks < 4 * params->nth && tokens / token_blocks > 48) token_blocks *= 2;
  const std::int64_t block = (tokens + token_blocks - 1) / token_blocks;

  Pieces pieces(shape.row_tiles() * token_blocks, params->nth, 1);
  std::int64_t expanded = -1;
  for (std::int64_t number = params->ith;; number = ggml_threadpool_chunk_add(params->threadpool, 1)) {
    const auto [first_piece, last_piece] = pieces.piece(number);
    if (first_piece == last_piece) return;
    for (std::int64_t piece = first_piece; piece < last_piece; ++piece) {
      const std::int64_t i = piece / token_blocks;
      const std::int64_t first = piece % token_blocks * block;
      const std::int64_t last = std::min(tokens, first + block);
      if (i != expanded) {
        kernel.expand(shape.type, tiles + static_cast<std::size_t>(i) * shape.row_tile_bytes(), shape.column_tiles(),
                      panel);
        expanded = i;
      }
      const std::int64_t rows = std::min<std::int64_t>(32, shape.rows - i * 32);
      if (rows == 32) {
        kernel.gemm(shape.type, panel, a, first, last - first, out + first * out_stride + i * 32, out_stride);
        continue;
      }
      constexpr std::int64_t kStep = 48;
      float whole[kStep * 32];
      for (std::int64_t t = first; t < last; t += kStep) {
        const std::int64_t count = std::min(kStep, last - t);
        kernel.gemm(shape.type, panel, a, t, count, whole, 32);
        for (std::int64_t k = 0; k < count; ++k) {
          std::copy_n(whole + k * 32, rows, out + (t + k) * out_stride + i * 32);
        }
      }
    }
  }
}

void multiply(const ggml_compute_params* params, ggml_tensor* op) {
  const ggml_tensor* weights = op->src[0];
  const ggml_tensor* x = op->src[1];
  const Shape shape = shape_of(weights);
  const std::int64_t tokens = ggml_nrows(x);
  if (tokens == 0) return;
  const Scratch scratch(shape, tokens);
  assert(params->wsize >= scratch.bytes(params->nth));
  std::byte* memory = align64(params->wdata);
  const Activations a = Activations::on(memory, tokens, shape.columns);

  const ColumnOrder order = column_order(shape.type);
  if (tokens == 1) {
    // One token's activations fit any cache: thread 0 quantises them while the others arrive at the barrier.
    if (params->ith == 0) kernels().quantise(static_cast<const float*>(x->data), shape.columns, order, a, 0);
  } else {
    for (std::int64_t t = params->ith; t < tokens; t += params->nth) {
      kernels().quantise(reinterpret_cast<const float*>(row_of(x, t)), shape.columns, order, a, t);
    }
  }
  if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
  ggml_barrier(params->threadpool);

  const auto* tiles = static_cast<const std::uint8_t*>(weights->data);
  auto* out = static_cast<float*>(op->data);
  if (tokens == 1) {
    multiply_one(params, shape, tiles, a, out);
  } else {
    auto* panel = reinterpret_cast<std::uint8_t*>(memory + scratch.activations +
                                                  scratch.panel * static_cast<std::size_t>(params->ith));
    multiply_many(params, shape, tiles, a, tokens, panel, out, op->ne[0]);
  }
}

void get_rows(const ggml_compute_params* params, ggml_tensor* op) {
  const ggml_tensor* weights = op->src[0];
  const ggml_tensor* indices = op->src[1];
  const Shape shape = shape_of(weights);
  const std::int64_t count = ggml_nelements(indices);
  for (std::int64_t i = params->ith; i < count; i += params->nth) {
    const std::int64_t i0 = i % indices->ne[0];
    std::int32_t row = 0;
    std::memcpy(&row, row_of(indices, i / indices->ne[0]) + static_cast<std::size_t>(i0) * indices->nb[0], sizeof row);
    auto* out = reinterpret_cast<float*>(row_of(op, i));
    if (row < 0 || row >= shape.rows) {
      std::fill_n(out, shape.columns, 0.0f);  // upstream asserts here; a token id is checked long before
      continue;
    }
    dequantise_row(shape, static_cast<const std::uint8_t*>(weights->data), row, out);
  }
}

}  // namespace

bool supports(const ggml_tensor* op) {
  const ggml_tensor* weights = op->src[0];
  const ggml_tensor* other = op->src[1];
  if (weights == nullptr || other == nullptr || op->type != GGML_TYPE_F32) return false;
  if (!weight_type_of(static_cast<std::uint32_t>(weights->type)) || weights->ne[2] != 1 || weights->ne[3] != 1) {
    return false;
  }
  if (other->buffer != nullptr && !ggml_backend_buft_is_host(ggml_backend_buffer_get_type(other->buffer))) return false;
  switch (op->op) {
    case GGML_OP_MUL_MAT:
      return other->type == GGML_TYPE_F32 && other->nb[0] == sizeof(float) && ggml_is_contiguous(op);
    case GGML_OP_GET_ROWS:
      return other->type == GGML_TYPE_I32;
    default:
      return false;
  }
}

std::size_t scratch_bytes(int threads, const ggml_tensor* op) {
  if (op->op != GGML_OP_MUL_MAT) return 0;
  return Scratch(shape_of(op->src[0]), ggml_nrows(op->src[1])).bytes(threads);
}

void compute(const ggml_compute_params* params, ggml_tensor* op) {
  if (op->op == GGML_OP_MUL_MAT) {
    multiply(params, op);
  } else {
    get_rows(params, op);
  }
}

}  // namespace kazeia::tiles
