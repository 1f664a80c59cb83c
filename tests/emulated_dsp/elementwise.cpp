// Element-wise ops, norms, activations and row sums.
#include <ggml.h>

#include <cstring>
#include <optional>

#include "emulated_dsp/executor.h"

namespace kazeia::emulated_dsp {
namespace {

bool is_float(const Tensor& tensor) {
  return tensor.type == GGML_TYPE_F32 || tensor.type == GGML_TYPE_F16;
}

float float_param(const Op& op, std::size_t index) {
  float value = 0;
  std::memcpy(&value, &op.params[index], sizeof(value));
  return value;
}

htp_status binary(Executor& executor, const Op& op, ggml_op ggml) {
  const Tensor* a = op.src[0];
  const Tensor* b = op.src[1];
  const Tensor& dst = *op.dst[0];
  if (a == nullptr || b == nullptr || !is_float(*a) || a->type != b->type || a->type != dst.type) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (!same_shape(*a, dst) || !repeats_to(*b, *a)) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(ggml, {}, {a, b}, dst, Needs::kRows);
}

htp_status unary(Executor& executor, const Op& op, ggml_op ggml, std::span<const std::int32_t> params) {
  const Tensor* source = op.src[0];
  const Tensor& dst = *op.dst[0];
  if (source == nullptr || !is_float(*source) || !is_float(dst) || !same_shape(*source, dst)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(ggml, params, {source}, dst, Needs::kFloats);
}

htp_status named_unary(Executor& executor, const Op& op, ggml_unary_op which) {
  const std::array<std::int32_t, 1> params{which};
  return unary(executor, op, GGML_OP_UNARY, params);
}

htp_status norm(Executor& executor, const Op& op, ggml_op ggml) {
  if (!(float_param(op, 0) >= 0.0F)) return HTP_STATUS_INVAL_PARAMS;
  return unary(executor, op, ggml, op.params);
}

htp_status norm_and_multiply(Executor& executor, const Op& op) {
  const Tensor* source = op.src[0];
  const Tensor* weight = op.src[1];
  const Tensor& dst = *op.dst[0];
  if (source == nullptr || weight == nullptr || !(float_param(op, 0) >= 0.0F)) return HTP_STATUS_INVAL_PARAMS;
  if (!is_float(*source) || !is_float(*weight) || !is_float(dst)) return HTP_STATUS_INVAL_PARAMS;
  if (!same_shape(*source, dst) || !repeats_to(*weight, dst)) return HTP_STATUS_INVAL_PARAMS;
  // By way of a temporary: dst may be the memory of the source or of the weight's neighbours.
  const Tensor normed = executor.temporary(GGML_TYPE_F32, dst.ne);
  const htp_status status = executor.compute(GGML_OP_RMS_NORM, op.params, {source}, normed, Needs::kFloats);
  if (status != HTP_STATUS_OK) return status;
  return executor.compute(GGML_OP_MUL, {}, {&normed, weight}, dst, Needs::kFloats);
}

htp_status sum_rows(Executor& executor, const Op& op) {
  const Tensor* source = op.src[0];
  const Tensor& dst = *op.dst[0];
  if (source == nullptr || source->type != GGML_TYPE_F32 || dst.type != GGML_TYPE_F32) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  std::array<std::int64_t, 4> expected = source->ne;
  expected[0] = 1;
  if (dst.ne != expected) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(GGML_OP_SUM_ROWS, {}, {source}, dst, Needs::kContiguous);
}

htp_status gated(Executor& executor, const Op& op, ggml_glu_op which) {
  const Tensor* gate = op.src[0];
  const Tensor* up = op.src[1];  // absent: gate and up are the halves of each row
  const Tensor& dst = *op.dst[0];
  if (gate == nullptr || gate->type != GGML_TYPE_F32 || dst.type != GGML_TYPE_F32) return HTP_STATUS_INVAL_PARAMS;
  if (up != nullptr && (up->type != GGML_TYPE_F32 || !same_shape(*gate, *up))) return HTP_STATUS_INVAL_PARAMS;
  std::array<std::int64_t, 4> expected = gate->ne;
  if (up == nullptr) {
    if (gate->ne[0] % 2 != 0) return HTP_STATUS_INVAL_PARAMS;
    expected[0] /= 2;
  }
  if (dst.ne != expected) return HTP_STATUS_INVAL_PARAMS;
  auto params = op.params;
  params[0] = which;
  return executor.compute(GGML_OP_GLU, params, {gate, up}, dst, Needs::kContiguous);
}

htp_status add_by_id(Executor& executor, const Op& op) {
  const Tensor* a = op.src[0];
  const Tensor* b = op.src[1];
  const Tensor* ids = op.src[2];
  const Tensor& dst = *op.dst[0];
  if (a == nullptr || b == nullptr || ids == nullptr || ids->type != GGML_TYPE_I32) return HTP_STATUS_INVAL_PARAMS;
  if (a->type != GGML_TYPE_F32 || b->type != GGML_TYPE_F32 || dst.type != GGML_TYPE_F32) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (!same_shape(*a, dst) || b->ne[0] != a->ne[0] || ids->ne[0] != a->ne[1] || ids->ne[1] != a->ne[2] ||
      a->ne[3] != 1 || !indices_within(*ids, b->ne[1])) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_ADD_ID, {}, {a, b, ids}, dst, Needs::kContiguous);
}

}  // namespace

htp_status execute_elementwise(Executor& executor, const Op& op) {
  switch (op.opcode) {
    case HTP_OP_MUL:
      return binary(executor, op, GGML_OP_MUL);
    case HTP_OP_ADD:
      return binary(executor, op, GGML_OP_ADD);
    case HTP_OP_SUB:
      return binary(executor, op, GGML_OP_SUB);
    case HTP_OP_DIV:
      return binary(executor, op, GGML_OP_DIV);
    case HTP_OP_ADD_ID:
      return add_by_id(executor, op);

    case HTP_OP_UNARY_SILU:
      return named_unary(executor, op, GGML_UNARY_OP_SILU);
    // The device has one GELU, x * sigmoid(1.702 x), which the host also sends for the exact and the tanh form.
    case HTP_OP_UNARY_GELU:
      return named_unary(executor, op, GGML_UNARY_OP_GELU_QUICK);
    case HTP_OP_UNARY_SIGMOID:
      return named_unary(executor, op, GGML_UNARY_OP_SIGMOID);
    case HTP_OP_UNARY_EXP:
      return named_unary(executor, op, GGML_UNARY_OP_EXP);
    case HTP_OP_UNARY_NEG:
      return named_unary(executor, op, GGML_UNARY_OP_NEG);
    case HTP_OP_UNARY_SOFTPLUS:
      return named_unary(executor, op, GGML_UNARY_OP_SOFTPLUS);
    case HTP_OP_UNARY_TANH:
      return named_unary(executor, op, GGML_UNARY_OP_TANH);
    case HTP_OP_UNARY_ABS:
      return named_unary(executor, op, GGML_UNARY_OP_ABS);
    case HTP_OP_UNARY_RELU:
      return named_unary(executor, op, GGML_UNARY_OP_RELU);
    case HTP_OP_UNARY_LOG:
      return unary(executor, op, GGML_OP_LOG, {});
    case HTP_OP_SQR:
      return unary(executor, op, GGML_OP_SQR, {});
    case HTP_OP_SQRT:
      return unary(executor, op, GGML_OP_SQRT, {});
    case HTP_OP_SCALE:
      return unary(executor, op, GGML_OP_SCALE, op.params);
    case HTP_OP_CLAMP:
      return unary(executor, op, GGML_OP_CLAMP, op.params);
    case HTP_OP_LEAKY_RELU:
      return unary(executor, op, GGML_OP_LEAKY_RELU, op.params);

    case HTP_OP_NORM:
      return norm(executor, op, GGML_OP_NORM);
    case HTP_OP_RMS_NORM:
      return norm(executor, op, GGML_OP_RMS_NORM);
    case HTP_OP_L2_NORM:
      return norm(executor, op, GGML_OP_L2_NORM);
    case HTP_OP_RMS_NORM_MUL:
      return norm_and_multiply(executor, op);
    case HTP_OP_SUM_ROWS:
      return sum_rows(executor, op);

    case HTP_OP_GLU_SWIGLU:
      return gated(executor, op, GGML_GLU_OP_SWIGLU);
    case HTP_OP_GLU_SWIGLU_OAI:
      return gated(executor, op, GGML_GLU_OP_SWIGLU_OAI);
    case HTP_OP_GLU_SWIGLU_CLAMP:
      return gated(executor, op, GGML_GLU_OP_SWIGLU_CLAMP);
    case HTP_OP_GLU_GEGLU:
      return gated(executor, op, GGML_GLU_OP_GEGLU);
    case HTP_OP_GLU_GEGLU_QUICK:
      return gated(executor, op, GGML_GLU_OP_GEGLU_QUICK);
    default:
      return HTP_STATUS_NO_SUPPORT;
  }
}

}  // namespace kazeia::emulated_dsp
