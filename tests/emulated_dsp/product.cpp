// Matrix products: tiled weights by our own code, plain F16 and F32 matrices by ggml.
#include <ggml.h>

#include "emulated_dsp/executor.h"
#include "emulated_dsp/tile_reader.h"
#include "emulated_dsp/tiled_product.h"

namespace kazeia::emulated_dsp {
namespace {

constexpr std::int64_t padded(std::int64_t value) {
  return (value + kTileSide - 1) / kTileSide * kTileSide;
}

bool slices_repeat(const Tensor& weights, const Tensor& activations, const Tensor& dst) {
  return activations.ne[2] % weights.ne[2] == 0 && activations.ne[3] % weights.ne[3] == 0 &&
         dst.ne[1] == activations.ne[1] && dst.ne[2] == activations.ne[2] && dst.ne[3] == activations.ne[3];
}

htp_status tiled(Executor& executor, const Tensor& weights, const Tensor& x, const Tensor* addend, const Tensor& dst) {
  // Rows and columns of the record are padded: the true ones are those of dst and x.
  if (weights.ne[0] != padded(x.ne[0]) || weights.ne[1] != padded(dst.ne[0])) return HTP_STATUS_INVAL_PARAMS;
  if (x.type != GGML_TYPE_F32 && x.type != GGML_TYPE_F16) return HTP_STATUS_INVAL_PARAMS;
  if (dst.type != GGML_TYPE_F32 || !rows_contiguous(dst)) return HTP_STATUS_INVAL_PARAMS;
  const Tensor* ready = executor.prepared(&x, Needs::kRows);
  if (ready == nullptr) return HTP_STATUS_NO_SUPPORT;
  multiply_tiles(weights, *ready, addend, dst, executor.threads());
  return HTP_STATUS_OK;
}

htp_status plain(Executor& executor, const Tensor& weights, const Tensor& x, const Tensor* addend, const Tensor& dst) {
  if (weights.type != GGML_TYPE_F16 && weights.type != GGML_TYPE_F32) {
    // The device reads quantised weights in tiles only; a host that sends them raw has lost its repack flag.
    return HTP_STATUS_INVAL_PARAMS;
  }
  if (weights.ne[0] != x.ne[0] || weights.ne[1] != dst.ne[0] || dst.type != GGML_TYPE_F32) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  const bool types = x.type == GGML_TYPE_F32 || (x.type == GGML_TYPE_F16 && weights.type == GGML_TYPE_F16);
  if (!types) return HTP_STATUS_INVAL_PARAMS;
  const Tensor* left = executor.prepared(&weights, Needs::kRows);
  const Tensor* right = executor.prepared(&x, Needs::kRows);
  if (left == nullptr || right == nullptr) return HTP_STATUS_NO_SUPPORT;
  if (addend == nullptr && contiguous(dst)) {
    return executor.compute(GGML_OP_MUL_MAT, {}, {left, right}, dst, Needs::kRows);
  }
  // ggml wants an unpermuted destination, and a fused sum may write over its own addend.
  const Tensor product = executor.temporary(GGML_TYPE_F32, dst.ne);
  const htp_status status = executor.compute(GGML_OP_MUL_MAT, {}, {left, right}, product, Needs::kRows);
  if (status != HTP_STATUS_OK) return status;
  if (addend != nullptr) return executor.compute(GGML_OP_ADD, {}, {&product, addend}, dst, Needs::kRows);
  return copy_elements(product, dst) ? HTP_STATUS_OK : HTP_STATUS_NO_SUPPORT;
}

htp_status multiply(Executor& executor, const Tensor* weights, const Tensor* x, const Tensor* addend,
                    const Tensor* dst) {
  if (weights == nullptr || x == nullptr || dst == nullptr || x->tiled || dst->tiled) return HTP_STATUS_INVAL_PARAMS;
  if (!slices_repeat(*weights, *x, *dst)) return HTP_STATUS_INVAL_PARAMS;
  if (addend != nullptr) {
    if (addend->tiled || addend->type != GGML_TYPE_F32 || !repeats_to(*addend, *dst)) return HTP_STATUS_INVAL_PARAMS;
    if (addend->ne[0] != 1 && addend->ne[0] != dst->ne[0]) return HTP_STATUS_INVAL_PARAMS;
    addend = executor.prepared(addend, Needs::kRows);
  }
  return weights->tiled ? tiled(executor, *weights, *x, addend, *dst) : plain(executor, *weights, *x, addend, *dst);
}

// Several weight matrices over one activation: sources w0 .. wn-1, x; destinations d0 .. dn-1.
htp_status several(Executor& executor, const Op& op) {
  std::size_t count = 0;
  while (count < op.dst.size() && op.dst[count] != nullptr) ++count;
  if (count < 2 || op.src[count] == nullptr) return HTP_STATUS_INVAL_PARAMS;
  for (std::size_t i = 0; i < count; ++i) {
    const htp_status status = multiply(executor, op.src[i], op.src[count], nullptr, op.dst[i]);
    if (status != HTP_STATUS_OK) return status;
  }
  return HTP_STATUS_OK;
}

}  // namespace

htp_status execute_product(Executor& executor, const Op& op) {
  switch (op.opcode) {
    case HTP_OP_MUL_MAT:
      return multiply(executor, op.src[0], op.src[1], nullptr, op.dst[0]);
    case HTP_OP_MUL_MAT_ADD:
      if (op.src[2] == nullptr) return HTP_STATUS_INVAL_PARAMS;
      return multiply(executor, op.src[0], op.src[1], op.src[2], op.dst[0]);
    case HTP_OP_MUL_MAT_NX:
      return several(executor, op);
    default:
      return HTP_STATUS_NO_SUPPORT;
  }
}

}  // namespace kazeia::emulated_dsp
