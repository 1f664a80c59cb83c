#include "emulated_dsp/corruption.h"

#include <ggml.h>

#include <cstring>
#include <random>

namespace kazeia::emulated_dsp {
namespace {

constexpr std::uint16_t kHalfOfOneHalf = 0x3800;  // 0.5 in f16

class Corrupter {
 public:
  explicit Corrupter(Fault fault) : constant_(fault == Fault::kConstant) {}

  void row(const Tensor& tensor, std::uint8_t* row) {
    for (std::int64_t i = 0; i < tensor.ne[0]; ++i) {
      std::uint8_t* element = row + static_cast<std::size_t>(i) * tensor.nb[0];
      const auto bits = static_cast<std::uint32_t>(generator_());
      if (tensor.type == GGML_TYPE_F32) {
        constexpr float half = 0.5F;
        if (constant_) {
          std::memcpy(element, &half, sizeof(half));
        } else {
          std::memcpy(element, &bits, sizeof(bits));
        }
      } else {
        const std::uint16_t value = constant_ ? kHalfOfOneHalf : static_cast<std::uint16_t>(bits);
        std::memcpy(element, &value, sizeof(value));
      }
    }
  }

 private:
  bool constant_;
  std::mt19937 generator_{std::random_device{}()};
};

}  // namespace

void corrupt_outputs(const Op& op, Fault fault) {
  Corrupter corrupter(fault);
  for (const Tensor* dst : op.dst) {
    if (dst == nullptr || dst->fence || (dst->type != GGML_TYPE_F32 && dst->type != GGML_TYPE_F16)) continue;
    const bool some_rows = op.opcode == HTP_OP_SET_ROWS;
    const std::int64_t rows = some_rows ? op.src[0]->ne[1] : dst->ne[1];
    for (std::int64_t i3 = 0; i3 < dst->ne[3]; ++i3) {
      for (std::int64_t i2 = 0; i2 < dst->ne[2]; ++i2) {
        for (std::int64_t i1 = 0; i1 < rows; ++i1) {
          const std::int64_t row =
              some_rows ? index_at(*op.src[1], i1, i2 % op.src[1]->ne[1], i3 % op.src[1]->ne[2], 0) : i1;
          corrupter.row(*dst, dst->row(row, i2, i3));
        }
      }
    }
  }
}

}  // namespace kazeia::emulated_dsp
