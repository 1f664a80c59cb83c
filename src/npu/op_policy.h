// Which classes of graph operations go to the NPU during prefill. Measured choices belong into the profile; the
// defaults are the users' decisions: matrix products and attention on the NPU, the recurrent layers' own
// operations on the CPU until a measurement says otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

struct ggml_tensor;

namespace kazeia::npu {

enum class OpClass {
  kMatmul,       // MUL_MAT
  kAttention,    // FLASH_ATTN_EXT, SOFT_MAX, ROPE, SET_ROWS (the KV cache's writes)
  kNorm,         // RMS_NORM, NORM, L2_NORM
  kElementwise,  // ADD, MUL, SCALE, activations, gated activations
  kCopy,         // CPY, CONT, GET_ROWS, CONCAT, REPEAT
  kRecurrent,    // SSM_CONV, GATED_DELTA_NET, and everything that belongs to them: what reads or writes the recurrent
                 // state, and what lies between the convolution and the delta rule
};
inline constexpr std::size_t kOpClasses = 6;

std::string_view op_class_name(OpClass op_class);  // "matmul", ...
std::optional<OpClass> op_class_of_name(std::string_view name);
OpClass op_class_at(std::size_t index);

// The class of a graph node. `op` must be a real operation, not a view.
OpClass classify(const ggml_tensor* op);

struct OpPolicy {
  // Indexed by OpClass.
  std::array<bool, kOpClasses> on_npu{true, true, true, true, true, false};

  bool allows(OpClass op_class) const { return on_npu[static_cast<std::size_t>(op_class)]; }
  void set(OpClass op_class, bool npu) { on_npu[static_cast<std::size_t>(op_class)] = npu; }
};

}  // namespace kazeia::npu
