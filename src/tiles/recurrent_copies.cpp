#include "tiles/recurrent_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ggml-backend.h"
#include "ggml-cpu/ggml-cpu-impl.h"
#include "ggml.h"

namespace kazeia::tiles {
namespace {

constexpr std::size_t kLongRowBytes = 64 * 1024;
constexpr std::int64_t kMostRows = 64;  // of any machine's threads

bool on_host(const ggml_tensor* tensor) {
  return tensor->buffer == nullptr || ggml_backend_buft_is_host(ggml_backend_buffer_get_type(tensor->buffer));
}

bool is_long_row_copy(const ggml_tensor* op) {
  if (op->op != GGML_OP_GET_ROWS || op->type != GGML_TYPE_F32) return false;
  const ggml_tensor* source = op->src[0];
  const ggml_tensor* indices = op->src[1];
  return source->type == GGML_TYPE_F32 && indices->type == GGML_TYPE_I32 && source->nb[0] == sizeof(float) &&
         source->ne[2] == 1 && source->ne[3] == 1 && ggml_is_vector(indices) && ggml_is_contiguous(op) &&
         ggml_nelements(indices) <= kMostRows && static_cast<std::size_t>(op->ne[0]) * sizeof(float) >= kLongRowBytes &&
         on_host(source);
}

bool copy_long_rows(const ggml_compute_params* params, ggml_tensor* op) {
  const ggml_tensor* source = op->src[0];
  const ggml_tensor* indices = op->src[1];
  const std::int64_t rows = ggml_nelements(indices);
  if (rows >= params->nth) return false;
  // Parts end at cache lines, so that no two threads write the same one.
  const std::int64_t lines = (op->ne[0] + 15) / 16;
  const std::int64_t first = lines * params->ith / params->nth * 16;
  const std::int64_t last = std::min(op->ne[0], lines * (params->ith + 1) / params->nth * 16);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::int32_t row = 0;
    std::memcpy(&row, static_cast<const std::byte*>(indices->data) + i * static_cast<std::int64_t>(sizeof row),
                sizeof row);
    if (row < 0 || row >= source->ne[1]) return false;  // upstream's own check answers
    const auto* from = reinterpret_cast<const float*>(static_cast<const std::byte*>(source->data) +
                                                      static_cast<std::size_t>(row) * source->nb[1]);
    float* to = static_cast<float*>(op->data) + i * op->ne[0];
    if (first < last) std::memcpy(to + first, from + first, static_cast<std::size_t>(last - first) * sizeof(float));
  }
  return true;
}

bool is_concat_of_rows(const ggml_tensor* op) {
  if (op->op != GGML_OP_CONCAT || op->type != GGML_TYPE_F32 || ggml_get_op_params_i32(op, 0) != 0) return false;
  const ggml_tensor* a = op->src[0];
  const ggml_tensor* b = op->src[1];
  // b is transposed: its columns, not its rows, are contiguous.
  return a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32 && op->ne[2] == 1 && op->ne[3] == 1 &&
         op->ne[1] >= 1024 && a->nb[0] == sizeof(float) && b->nb[1] == sizeof(float) && ggml_is_contiguous(op) &&
         on_host(a) && on_host(b);
}

bool concat_rows(const ggml_compute_params* params, ggml_tensor* op) {
  constexpr std::int64_t kBlock = 16;  // one cache line of floats
  const ggml_tensor* a = op->src[0];
  const ggml_tensor* b = op->src[1];
  const std::int64_t blocks = (op->ne[1] + kBlock - 1) / kBlock;
  const std::int64_t first = blocks * params->ith / params->nth * kBlock;
  const std::int64_t last = std::min(op->ne[1], blocks * (params->ith + 1) / params->nth * kBlock);
  const std::int64_t width = op->ne[0];
  auto* out = static_cast<float*>(op->data);
  for (std::int64_t row = first; row < last; row += kBlock) {
    const std::int64_t rows = std::min(kBlock, last - row);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(out + (row + r) * width,
                  static_cast<const std::byte*>(a->data) + static_cast<std::size_t>(row + r) * a->nb[1],
                  static_cast<std::size_t>(a->ne[0]) * sizeof(float));
    }
    for (std::int64_t column = 0; column < b->ne[0]; ++column) {
      const auto* from = reinterpret_cast<const float*>(static_cast<const std::byte*>(b->data) +
                                                        static_cast<std::size_t>(column) * b->nb[0]) +
                         row;
      float* to = out + row * width + a->ne[0] + column;
      for (std::int64_t r = 0; r < rows; ++r) to[r * width] = from[r];
    }
  }
  return true;
}

}  // namespace

bool is_recurrent_copy(const ggml_tensor* op) {
  return is_long_row_copy(op) || is_concat_of_rows(op);
}

bool run_recurrent_copy(const ggml_compute_params* params, ggml_tensor* op) {
  return op->op == GGML_OP_GET_ROWS ? copy_long_rows(params, op) : concat_rows(params, op);
}

}  // namespace kazeia::tiles
