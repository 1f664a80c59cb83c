#include "npu/op_policy.h"

#include <string>

#include "ggml-impl.h"
#include "ggml.h"

namespace kazeia::npu {
namespace {

constexpr std::array<std::string_view, kOpClasses> kNames = {"matmul",      "attention", "norm",
                                                             "elementwise", "copy",      "recurrent"};

const ggml_tensor* storage_of(const ggml_tensor* tensor) {
  return tensor->view_src != nullptr ? tensor->view_src : tensor;
}

// Upstream names the recurrent layers' states "cache_r_l<layer>" (convolution) and "cache_s_l<layer>" (delta rule).
bool is_recurrent_state(const ggml_tensor* tensor) {
  const std::string_view name = ggml_get_name(storage_of(tensor));
  return name.starts_with("cache_r_") || name.starts_with("cache_s_");
}

bool touches_recurrent_state(const ggml_tensor* op) {
  if (is_recurrent_state(op)) return true;
  for (const ggml_tensor* source : op->src) {
    if (source != nullptr && is_recurrent_state(source)) return true;
  }
  return false;
}

// The activation and the L2 norms between the convolution and the delta rule: sent to another processor than their
// neighbours, each would cost two crossings. L2 norms appear as L2_NORM or as RMS_NORM and SCALE.
bool follows_convolution(const ggml_tensor* op) {
  constexpr int kLongestChain = 12;  // views included; five in Qwen3.5's graph
  const ggml_tensor* tensor = op;
  for (int i = 0; i < kLongestChain && tensor != nullptr; ++i) {
    switch (tensor->op) {
      case GGML_OP_SSM_CONV:
        return true;
      case GGML_OP_UNARY:
      case GGML_OP_L2_NORM:
      case GGML_OP_RMS_NORM:
      case GGML_OP_SCALE:
      case GGML_OP_CONT:
      case GGML_OP_REPEAT:
        tensor = tensor->src[0];
        break;
      default:
        if (tensor->op == GGML_OP_NONE || !ggml_op_is_empty(tensor->op)) return false;  // a view goes on
        tensor = tensor->src[0];
    }
  }
  return false;
}

}  // namespace

std::string_view op_class_name(OpClass op_class) {
  return kNames[static_cast<std::size_t>(op_class)];
}

std::optional<OpClass> op_class_of_name(std::string_view name) {
  for (std::size_t i = 0; i < kOpClasses; ++i) {
    if (kNames[i] == name) return op_class_at(i);
  }
  return std::nullopt;
}

OpClass op_class_at(std::size_t index) {
  return static_cast<OpClass>(index);
}

OpClass classify(const ggml_tensor* op) {
  switch (op->op) {
    case GGML_OP_SSM_CONV:
    case GGML_OP_SSM_SCAN:
    case GGML_OP_GATED_DELTA_NET:
    case GGML_OP_CUMSUM:
    case GGML_OP_TRI:
    case GGML_OP_SOLVE_TRI:
      return OpClass::kRecurrent;
    case GGML_OP_CONCAT:  // the convolution's window: the kept columns and the new ones
      for (const ggml_tensor* source : op->src) {
        if (source != nullptr && source->op != GGML_OP_NONE && touches_recurrent_state(storage_of(source))) {
          return OpClass::kRecurrent;
        }
      }
      break;
    default:
      break;
  }
  if (touches_recurrent_state(op) || follows_convolution(op)) return OpClass::kRecurrent;
  switch (op->op) {
    case GGML_OP_MUL_MAT:
    case GGML_OP_MUL_MAT_ID:
      return OpClass::kMatmul;
    case GGML_OP_FLASH_ATTN_EXT:
    case GGML_OP_SOFT_MAX:
    case GGML_OP_ROPE:
    case GGML_OP_SET_ROWS:
      return OpClass::kAttention;
    case GGML_OP_RMS_NORM:
    case GGML_OP_NORM:
    case GGML_OP_L2_NORM:
      return OpClass::kNorm;
    case GGML_OP_CPY:
    case GGML_OP_CONT:
    case GGML_OP_DUP:
    case GGML_OP_GET_ROWS:
    case GGML_OP_CONCAT:
    case GGML_OP_REPEAT:
      return OpClass::kCopy;
    default:
      return OpClass::kElementwise;
  }
}

}  // namespace kazeia::npu
