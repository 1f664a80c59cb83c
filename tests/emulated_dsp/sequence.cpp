// Attention, rotary embedding, convolution and the gated delta rule.
#include <ggml.h>

#include <algorithm>
#include <cstring>

#include "emulated_dsp/executor.h"

namespace kazeia::emulated_dsp {
namespace {

bool is_f32(const Tensor* tensor) {
  return tensor != nullptr && tensor->type == GGML_TYPE_F32;
}

htp_status softmax(Executor& executor, const Op& op) {
  const Tensor* logits = op.src[0];
  const Tensor* mask = op.src[1];
  const Tensor* sinks = op.src[2];
  const Tensor& dst = *op.dst[0];
  if (!is_f32(logits) || dst.type != GGML_TYPE_F32 || !same_shape(*logits, dst)) return HTP_STATUS_INVAL_PARAMS;
  if (mask != nullptr) {
    if (mask->type != GGML_TYPE_F32 && mask->type != GGML_TYPE_F16) return HTP_STATUS_INVAL_PARAMS;
    if (mask->ne[0] != logits->ne[0] || mask->ne[1] < logits->ne[1] || logits->ne[2] % mask->ne[2] != 0 ||
        logits->ne[3] % mask->ne[3] != 0) {
      return HTP_STATUS_INVAL_PARAMS;
    }
  }
  if (sinks != nullptr && (!is_f32(sinks) || sinks->ne[0] != logits->ne[2])) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(GGML_OP_SOFT_MAX, op.params, {logits, mask, sinks}, dst, Needs::kContiguous);
}

bool known_rope(std::int32_t mode) {
  return mode == GGML_ROPE_TYPE_NORMAL || mode == GGML_ROPE_TYPE_NEOX || mode == GGML_ROPE_TYPE_MROPE ||
         mode == GGML_ROPE_TYPE_VISION || mode == GGML_ROPE_TYPE_IMROPE;
}

htp_status rope(Executor& executor, const Op& op) {
  const Tensor* source = op.src[0];
  const Tensor* positions = op.src[1];
  const Tensor* factors = op.src[2];
  const Tensor& dst = *op.dst[0];
  const std::int64_t dims = op.params[1];
  const std::int32_t mode = op.params[2];
  const std::int64_t first = op.params[15];
  if (!is_f32(source) || dst.type != GGML_TYPE_F32 || !same_shape(*source, dst) || positions == nullptr ||
      positions->type != GGML_TYPE_I32 || !contiguous(*positions)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  // ggml's op never ends for 0 dimensions, which upstream asks about but never sends, and writes pairs.
  if (!known_rope(mode) || dims <= 0 || dims % 2 != 0 || source->ne[0] % 2 != 0 || first < 0 || first % 2 != 0 ||
      first + dims > source->ne[0]) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  const bool sections = (mode & GGML_ROPE_TYPE_MROPE) != 0;
  if (sections) {
    std::int64_t sum = 0;
    for (std::size_t i = 11; i < 15; ++i) {
      if (op.params[i] < 0) return HTP_STATUS_INVAL_PARAMS;
      sum += op.params[i];
    }
    if (sum == op.params[14] || sum > source->ne[0]) return HTP_STATUS_INVAL_PARAMS;
  }
  if (mode == GGML_ROPE_TYPE_VISION && (dims != source->ne[0] / 2 || first != 0)) return HTP_STATUS_INVAL_PARAMS;
  if (positions->ne[0] < source->ne[2] * (sections ? 4 : 1)) return HTP_STATUS_INVAL_PARAMS;
  if (factors != nullptr && (!is_f32(factors) || factors->ne[0] < dims / 2 || !contiguous(*factors))) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  return executor.compute(GGML_OP_ROPE, op.params, {source, positions, factors}, dst, Needs::kRows);
}

bool attention_type(const Tensor& tensor) {
  return tensor.type == GGML_TYPE_F16 || tensor.type == GGML_TYPE_Q8_0;
}

htp_status flash_attention(Executor& executor, const Op& op) {
  const Tensor* q = op.src[0];
  const Tensor* k = op.src[1];
  const Tensor* v = op.src[2];
  const Tensor* mask = op.src[3];
  const Tensor* sinks = op.src[4];
  const Tensor& dst = *op.dst[0];
  if (q == nullptr || k == nullptr || v == nullptr || !attention_type(*k) || !attention_type(*v)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if ((q->type != GGML_TYPE_F32 && q->type != GGML_TYPE_F16) ||
      (dst.type != GGML_TYPE_F32 && dst.type != GGML_TYPE_F16)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (op.params[3] != GGML_PREC_DEFAULT && op.params[3] != GGML_PREC_F32) return HTP_STATUS_INVAL_PARAMS;
  const std::array<std::int64_t, 4> expected{v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
  if (dst.ne != expected || q->ne[0] != k->ne[0] || k->ne[1] != v->ne[1]) return HTP_STATUS_INVAL_PARAMS;
  for (const Tensor* cache : {k, v}) {
    if (q->ne[2] % cache->ne[2] != 0 || q->ne[3] % cache->ne[3] != 0) return HTP_STATUS_INVAL_PARAMS;
  }
  if (mask != nullptr && (mask->type != GGML_TYPE_F16 || mask->ne[0] < k->ne[1] || mask->ne[1] < q->ne[1])) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (sinks != nullptr && (!is_f32(sinks) || sinks->ne[0] != q->ne[2] || !contiguous(*sinks))) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  // ggml's op reads F32 queries and writes F32.
  const Tensor* queries = q->type == GGML_TYPE_F32 ? q : executor.prepared(q, Needs::kFloats);
  const Tensor out = dst.type == GGML_TYPE_F32 && contiguous(dst) ? dst : executor.temporary(GGML_TYPE_F32, dst.ne);
  const htp_status status =
      executor.compute(GGML_OP_FLASH_ATTN_EXT, op.params, {queries, k, v, mask, sinks}, out, Needs::kRows);
  if (status != HTP_STATUS_OK || out.data == dst.data) return status;
  return copy_elements(out, dst) ? HTP_STATUS_OK : HTP_STATUS_NO_SUPPORT;
}

htp_status convolution(Executor& executor, const Op& op) {
  const Tensor* x = op.src[0];
  const Tensor* kernel = op.src[1];
  const Tensor& dst = *op.dst[0];
  if (!is_f32(x) || !is_f32(kernel) || dst.type != GGML_TYPE_F32) return HTP_STATUS_INVAL_PARAMS;
  const std::array<std::int64_t, 4> window{kernel->ne[0] - 1 + dst.ne[1], dst.ne[0], dst.ne[2], 1};
  const std::array<std::int64_t, 4> weights{kernel->ne[0], dst.ne[0], 1, 1};
  if (x->ne != window || kernel->ne != weights || dst.ne[3] != 1) return HTP_STATUS_INVAL_PARAMS;
  return executor.compute(GGML_OP_SSM_CONV, {}, {x, kernel}, dst, Needs::kContiguous);
}

htp_status gated_delta_net(Executor& executor, const Op& op) {
  for (std::size_t i = 0; i < 6; ++i) {
    if (!is_f32(op.src[i])) return HTP_STATUS_INVAL_PARAMS;
  }
  const Tensor& q = *op.src[0];
  const Tensor& k = *op.src[1];
  const Tensor& v = *op.src[2];
  const Tensor& gate = *op.src[3];
  const Tensor& beta = *op.src[4];
  const Tensor& state = *op.src[5];
  const Tensor& dst = *op.dst[0];
  const Tensor* state_out = op.dst[1];  // fused: the new state goes here and not behind the output
  const std::int64_t size = v.ne[0];
  const std::int64_t heads = v.ne[1];
  const std::int64_t tokens = v.ne[2];
  const std::int64_t sequences = v.ne[3];
  const std::int64_t snapshots = op.params[0];
  for (const Tensor* side : {&q, &k}) {
    if (side->ne[0] != size || side->ne[2] != tokens || sequences % side->ne[3] != 0) return HTP_STATUS_INVAL_PARAMS;
  }
  const std::array<std::int64_t, 4> expected_state{size, size, heads, sequences};
  const std::array<std::int64_t, 4> expected_beta{1, heads, tokens, sequences};
  const std::array<std::int64_t, 4> expected_gate{gate.ne[0], heads, tokens, sequences};
  if (snapshots < 1 || snapshots > (1 << 20) || (gate.ne[0] != 1 && gate.ne[0] != size) || gate.ne != expected_gate ||
      beta.ne != expected_beta || state.ne != expected_state || dst.type != GGML_TYPE_F32 || !contiguous(dst)) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  const std::array<std::int64_t, 4> expected{size * heads, tokens * sequences + size * sequences * snapshots, 1, 1};
  if (dst.ne != expected) return HTP_STATUS_INVAL_PARAMS;

  const auto run = [&](const Tensor& out) {
    return executor.compute(
        GGML_OP_GATED_DELTA_NET, op.params,
        {executor.prepared(&q, Needs::kRows), executor.prepared(&k, Needs::kRows), executor.prepared(&v, Needs::kRows),
         executor.prepared(&gate, Needs::kContiguous), executor.prepared(&beta, Needs::kContiguous),
         executor.prepared(&state, Needs::kContiguous)},
        out, Needs::kRows);
  };
  if (state_out == nullptr) return run(dst);

  const std::int64_t written = std::min(tokens, snapshots);
  const std::size_t state_bytes = static_cast<std::size_t>(written * sequences * heads * size * size) * sizeof(float);
  if (!is_f32(state_out) || !contiguous(*state_out) ||
      static_cast<std::size_t>(state_out->elements()) * sizeof(float) < state_bytes) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  // As on the device, the place of the state behind the output stays untouched.
  const Tensor both = executor.temporary(GGML_TYPE_F32, dst.ne);
  const htp_status status = run(both);
  if (status != HTP_STATUS_OK) return status;
  const std::size_t output_bytes = static_cast<std::size_t>(size * heads * tokens * sequences) * sizeof(float);
  std::memcpy(dst.data, both.data, output_bytes);
  std::memcpy(state_out->data, both.data + output_bytes, state_bytes);
  return HTP_STATUS_OK;
}

}  // namespace

htp_status execute_sequence(Executor& executor, const Op& op) {
  switch (op.opcode) {
    case HTP_OP_SOFTMAX:
      return softmax(executor, op);
    case HTP_OP_ROPE:
      return rope(executor, op);
    case HTP_OP_FLASH_ATTN_EXT:
      return flash_attention(executor, op);
    case HTP_OP_SSM_CONV:
      return convolution(executor, op);
    case HTP_OP_GATED_DELTA_NET:
      return gated_delta_net(executor, op);
    default:
      return HTP_STATUS_NO_SUPPORT;
  }
}

}  // namespace kazeia::emulated_dsp
