// Ops that move, gather, order or generate elements.
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "emulated_dsp/executor.h"

namespace kazeia::emulated_dsp {
namespace {

bool is_float(const Tensor& tensor) {
  return tensor.type == GGML_TYPE_F32 || tensor.type == GGML_TYPE_F16;
}
bool is_index(const Tensor& tensor) {
  return tensor.type == GGML_TYPE_I32 || tensor.type == GGML_TYPE_I64;
}

htp_status copy(const Op& op) {
  const Tensor* source = op.src[0];
  const Tensor& dst = *op.dst[0];
  if (source == nullptr || !is_float(*source) || !is_float(dst) || source->elements() != dst.elements()) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return copy_elements(*source, dst) ? HTP_STATUS_OK : HTP_STATUS_NO_SUPPORT;
}

htp_status set_rows(Executor& executor, const Op& op) {
  const Tensor* values = op.src[0];
  const Tensor* rows = op.src[1];
  const Tensor& dst = *op.dst[0];
  if (values == nullptr || rows == nullptr || values->type != GGML_TYPE_F32 || !is_index(*rows)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  const bool types = is_float(dst) || dst.type == GGML_TYPE_Q8_0;
  if (!types || !rows_contiguous(dst) || values->ne[0] != dst.ne[0] || values->ne[2] != dst.ne[2] ||
      values->ne[3] != dst.ne[3]) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (rows->ne[0] != values->ne[1] || values->ne[2] % rows->ne[1] != 0 || values->ne[3] % rows->ne[2] != 0 ||
      rows->ne[3] != 1 || !indices_within(*rows, dst.ne[1])) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_SET_ROWS, {}, {values, rows}, dst, Needs::kRows);
}

htp_status get_rows(Executor& executor, const Op& op) {
  const Tensor* table = op.src[0];
  const Tensor* rows = op.src[1];
  const Tensor& dst = *op.dst[0];
  if (table == nullptr || rows == nullptr || !is_index(*rows)) return HTP_STATUS_INVAL_PARAMS;
  const bool integers = table->type == GGML_TYPE_I32 && dst.type == GGML_TYPE_I32;
  const bool floats = (is_float(*table) || table->type == GGML_TYPE_Q8_0) && dst.type == GGML_TYPE_F32;
  if (!integers && !floats) return HTP_STATUS_INVAL_PARAMS;
  const std::array<std::int64_t, 4> expected{table->ne[0], rows->ne[0], rows->ne[1], rows->ne[2]};
  if (dst.ne != expected || rows->ne[3] != 1 || table->ne[2] != rows->ne[1] || table->ne[3] != rows->ne[2] ||
      !indices_within(*rows, table->ne[1])) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (rows->type == GGML_TYPE_I32) {
    return executor.compute(GGML_OP_GET_ROWS, {}, {table, rows}, dst, Needs::kRows);
  }
  // ggml gathers by 32-bit indices only. The low half of each index is enough: they were just checked.
  Tensor low = *rows;
  low.type = GGML_TYPE_I32;
  return executor.compute(GGML_OP_GET_ROWS, {}, {table, executor.prepared(&low, Needs::kContiguous)}, dst,
                          Needs::kRows);
}

htp_status concatenate(Executor& executor, const Op& op) {
  const Tensor* a = op.src[0];
  const Tensor* b = op.src[1];
  const Tensor& dst = *op.dst[0];
  const std::int32_t dim = op.params[0];
  if (a == nullptr || b == nullptr || dim < 0 || dim > 3 || a->type != b->type || a->type != dst.type) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (!is_float(*a) && a->type != GGML_TYPE_I32) return HTP_STATUS_INVAL_PARAMS;
  std::array<std::int64_t, 4> expected = a->ne;
  expected[static_cast<std::size_t>(dim)] += b->ne[static_cast<std::size_t>(dim)];
  if (dst.ne != expected) return HTP_STATUS_INVAL_PARAMS;
  for (std::int32_t i = 0; i < 4; ++i) {
    if (i != dim && a->ne[static_cast<std::size_t>(i)] != b->ne[static_cast<std::size_t>(i)]) {
      return HTP_STATUS_INVAL_PARAMS;
    }
  }
  return executor.compute(GGML_OP_CONCAT, op.params, {a, b}, dst, Needs::kRows);
}

htp_status repeat(Executor& executor, const Op& op) {
  const Tensor* source = op.src[0];
  const Tensor& dst = *op.dst[0];
  if (source == nullptr || !is_float(*source) || source->type != dst.type || !repeats_to(*source, dst)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_REPEAT, {}, {source}, dst, Needs::kRows);
}

// One F32 source and a destination of `type`.
bool from_floats(const Op& op, std::uint32_t type) {
  return op.src[0] != nullptr && op.src[0]->type == GGML_TYPE_F32 && op.dst[0]->type == type;
}

htp_status order(Executor& executor, const Op& op, ggml_op ggml) {
  if (!from_floats(op, GGML_TYPE_I32)) return HTP_STATUS_INVAL_PARAMS;
  const Tensor& source = *op.src[0];
  const Tensor& dst = *op.dst[0];
  std::array<std::int64_t, 4> expected = source.ne;
  if (ggml == GGML_OP_TOP_K) {
    if (dst.ne[0] > source.ne[0]) return HTP_STATUS_INVAL_PARAMS;
    expected[0] = dst.ne[0];
  } else if (op.params[0] != GGML_SORT_ORDER_ASC && op.params[0] != GGML_SORT_ORDER_DESC) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (dst.ne != expected) return HTP_STATUS_INVAL_PARAMS;
  // Sorting must end, whatever is sorted: a comparison that NaN makes inconsistent may run for ever.
  const Tensor ordered = executor.temporary(GGML_TYPE_F32, source.ne);
  if (!copy_elements(source, ordered)) return HTP_STATUS_NO_SUPPORT;
  auto* values = reinterpret_cast<float*>(ordered.data);
  std::replace_if(
      values, values + ordered.elements(), [](float value) { return std::isnan(value); },
      -std::numeric_limits<float>::infinity());
  return executor.compute(ggml, op.params, {&ordered}, dst, Needs::kContiguous);
}

htp_status same_shape_op(Executor& executor, const Op& op, ggml_op ggml) {
  if (!from_floats(op, GGML_TYPE_F32) || !same_shape(*op.src[0], *op.dst[0])) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(ggml, op.params, {op.src[0]}, *op.dst[0], Needs::kContiguous);
}

htp_status triangle(Executor& executor, const Op& op) {
  if (op.params[0] < GGML_TRI_TYPE_UPPER_DIAG || op.params[0] > GGML_TRI_TYPE_LOWER) return HTP_STATUS_INVAL_PARAMS;
  return same_shape_op(executor, op, GGML_OP_TRI);
}

htp_status roll(Executor& executor, const Op& op) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (std::abs(std::int64_t{op.params[i]}) >= op.dst[0]->ne[i]) return HTP_STATUS_INVAL_PARAMS;
  }
  return same_shape_op(executor, op, GGML_OP_ROLL);
}

htp_status fill(Executor& executor, const Op& op) {
  const Tensor& dst = *op.dst[0];
  if (!is_float(dst)) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(GGML_OP_FILL, op.params, {&dst}, dst, Needs::kContiguous);
}

htp_status diagonal(Executor& executor, const Op& op) {
  if (!from_floats(op, GGML_TYPE_F32)) return HTP_STATUS_INVAL_PARAMS;
  const Tensor& source = *op.src[0];
  const std::array<std::int64_t, 4> expected{source.ne[0], source.ne[0], source.ne[2], source.ne[3]};
  if (source.ne[1] != 1 || op.dst[0]->ne != expected) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(GGML_OP_DIAG, {}, {&source}, *op.dst[0], Needs::kContiguous);
}

htp_status pad(Executor& executor, const Op& op) {
  if (!from_floats(op, GGML_TYPE_F32)) return HTP_STATUS_INVAL_PARAMS;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::int64_t left = op.params[2 * i];
    const std::int64_t right = op.params[2 * i + 1];
    if (left < 0 || right < 0 || op.src[0]->ne[i] + left + right != op.dst[0]->ne[i]) return HTP_STATUS_INVAL_PARAMS;
    const bool circular = op.params[8] != 0;
    if (circular && (left > op.src[0]->ne[i] || right > op.src[0]->ne[i])) return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_PAD, op.params, {op.src[0]}, *op.dst[0], Needs::kContiguous);
}

htp_status solve_triangular(Executor& executor, const Op& op) {
  if (!from_floats(op, GGML_TYPE_F32) || op.src[1] == nullptr || op.src[1]->type != GGML_TYPE_F32) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  const Tensor& a = *op.src[0];
  const Tensor& b = *op.src[1];
  if (a.ne[0] != a.ne[1] || a.ne[1] != b.ne[1] || a.ne[2] != b.ne[2] || a.ne[3] != b.ne[3] ||
      !same_shape(b, *op.dst[0])) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_SOLVE_TRI, op.params, {&a, &b}, *op.dst[0], Needs::kContiguous);
}

}  // namespace

htp_status execute_movement(Executor& executor, const Op& op) {
  switch (op.opcode) {
    case HTP_OP_CPY:
    case HTP_OP_CPY_FENCE:
      return copy(op);
    case HTP_OP_SET_ROWS:
      return set_rows(executor, op);
    case HTP_OP_GET_ROWS:
      return get_rows(executor, op);
    case HTP_OP_CONCAT:
      return concatenate(executor, op);
    case HTP_OP_REPEAT:
      return repeat(executor, op);
    case HTP_OP_ARGSORT:
      return order(executor, op, GGML_OP_ARGSORT);
    case HTP_OP_TOP_K:
      return order(executor, op, GGML_OP_TOP_K);
    case HTP_OP_CUMSUM:
      return same_shape_op(executor, op, GGML_OP_CUMSUM);
    case HTP_OP_TRI:
      return triangle(executor, op);
    case HTP_OP_ROLL:
      return roll(executor, op);
    case HTP_OP_FILL:
      return fill(executor, op);
    case HTP_OP_DIAG:
      return diagonal(executor, op);
    case HTP_OP_PAD:
      return pad(executor, op);
    case HTP_OP_SOLVE_TRI:
      return solve_triangular(executor, op);
    default:
      return HTP_STATUS_NO_SUPPORT;
  }
}

}  // namespace kazeia::emulated_dsp
