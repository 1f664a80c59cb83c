#include "emulated_dsp/executor.h"

#include <ggml.h>

namespace kazeia::emulated_dsp {
namespace {

bool satisfies(const Tensor& tensor, Needs needs) {
  switch (needs) {
    case Needs::kRows:
      return rows_contiguous(tensor);
    case Needs::kContiguous:
      return contiguous(tensor);
    case Needs::kFloats:
      return contiguous(tensor) && tensor.type == GGML_TYPE_F32;
  }
  return false;
}

// Records may give a dimension of one element any stride; ggml asserts on some of those.
Tensor with_usual_strides(const Tensor& tensor) {
  return contiguous(tensor) ? contiguous_at(tensor.data, tensor.type, tensor.ne) : tensor;
}

std::uint32_t type_for(const Tensor& tensor, Needs needs) {
  return needs == Needs::kFloats && tensor.type == GGML_TYPE_F16 ? std::uint32_t{GGML_TYPE_F32} : tensor.type;
}

}  // namespace

Tensor Executor::temporary(std::uint32_t type, const std::array<std::int64_t, 4>& ne) {
  memory_.emplace_back(contiguous_bytes(type, ne));
  return contiguous_at(memory_.back().data(), type, ne);
}

const Tensor* Executor::prepared(const Tensor* tensor, Needs needs) {
  if (tensor == nullptr) return nullptr;
  if (satisfies(*tensor, needs)) {
    tensors_.push_back(with_usual_strides(*tensor));
  } else {
    const Tensor copy = temporary(type_for(*tensor, needs), tensor->ne);
    if (!copy_elements(*tensor, copy)) return nullptr;
    tensors_.push_back(copy);
  }
  return &tensors_.back();
}

htp_status Executor::compute(ggml_op ggml, std::span<const std::int32_t> params,
                             std::initializer_list<const Tensor*> sources, const Tensor& dst, Needs needs) {
  std::vector<const Tensor*> ready;
  for (const Tensor* source : sources) {
    ready.push_back(prepared(source, needs));
    if (source != nullptr && ready.back() == nullptr) return HTP_STATUS_NO_SUPPORT;
  }
  const bool direct = satisfies(dst, needs);
  const Tensor target = direct ? with_usual_strides(dst) : temporary(type_for(dst, needs), dst.ne);
  if (!runner_.run(ggml, params, ready, target)) return HTP_STATUS_INTERNAL_ERR;
  if (!direct && !copy_elements(target, dst)) return HTP_STATUS_NO_SUPPORT;
  return HTP_STATUS_OK;
}

htp_status Executor::execute(const Op& op) {
  memory_.clear();
  tensors_.clear();
  if (op.opcode == HTP_OP_MDEV_GROUP) return HTP_STATUS_NO_SUPPORT;  // several devices in one group: not emulated
  if (op.dst[0] == nullptr) return HTP_STATUS_INVAL_PARAMS;
  if (op.dst[0]->tiled) return HTP_STATUS_INVAL_PARAMS;  // weights are never written
  switch (op.opcode) {
    case HTP_OP_MUL_MAT:
    case HTP_OP_MUL_MAT_ADD:
    case HTP_OP_MUL_MAT_NX:
      return execute_product(*this, op);
    default:
      break;
  }
  // Beyond the products nothing reads tiles.
  for (const Tensor* source : op.src) {
    if (source != nullptr && source->tiled) return HTP_STATUS_INVAL_PARAMS;
  }
  for (auto* family : {execute_elementwise, execute_movement, execute_sequence}) {
    const htp_status status = family(*this, op);
    if (status != HTP_STATUS_NO_SUPPORT) return status;
  }
  return HTP_STATUS_NO_SUPPORT;
}

bool indices_within(const Tensor& indices, std::int64_t limit) {
  for (std::int64_t i3 = 0; i3 < indices.ne[3]; ++i3) {
    for (std::int64_t i2 = 0; i2 < indices.ne[2]; ++i2) {
      for (std::int64_t i1 = 0; i1 < indices.ne[1]; ++i1) {
        for (std::int64_t i0 = 0; i0 < indices.ne[0]; ++i0) {
          const std::int64_t index = index_at(indices, i0, i1, i2, i3);
          if (index < 0 || index >= limit) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace kazeia::emulated_dsp
