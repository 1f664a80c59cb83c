#include "gguf/types.h"

#include <algorithm>
#include <array>

namespace kazeia::gguf {
namespace {

constexpr TensorType entry(std::uint32_t id, std::string_view name, std::uint32_t elements, std::uint32_t bytes) {
  return {static_cast<TypeId>(id), name, elements, bytes};
}

// Block sizes follow from the layouts: scales first, quants after. f16 = 2 bytes; a super-block has 256 elements.
constexpr std::array kTypes = {
    entry(0, "F32", 1, 4),
    entry(1, "F16", 1, 2),
    entry(2, "Q4_0", 32, 2 + 16),
    entry(3, "Q4_1", 32, 4 + 16),
    entry(6, "Q5_0", 32, 2 + 4 + 16),
    entry(7, "Q5_1", 32, 4 + 4 + 16),
    entry(8, "Q8_0", 32, 2 + 32),
    entry(9, "Q8_1", 32, 4 + 32),
    entry(10, "Q2_K", 256, 16 + 64 + 4),
    entry(11, "Q3_K", 256, 32 + 64 + 12 + 2),
    entry(12, "Q4_K", 256, 4 + 12 + 128),
    entry(13, "Q5_K", 256, 4 + 12 + 32 + 128),
    entry(14, "Q6_K", 256, 128 + 64 + 16 + 2),
    entry(15, "Q8_K", 256, 4 + 256 + 32),
    entry(16, "IQ2_XXS", 256, 2 + 64),
    entry(17, "IQ2_XS", 256, 2 + 64 + 8),
    entry(18, "IQ3_XXS", 256, 2 + 96),
    entry(19, "IQ1_S", 256, 2 + 32 + 16),
    entry(20, "IQ4_NL", 32, 2 + 16),
    entry(21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
    entry(22, "IQ2_S", 256, 2 + 64 + 16),
    entry(23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
    entry(24, "I8", 1, 1),
    entry(25, "I16", 1, 2),
    entry(26, "I32", 1, 4),
    entry(27, "I64", 1, 8),
    entry(28, "F64", 1, 8),
    entry(29, "IQ1_M", 256, 32 + 16 + 8),
    entry(30, "BF16", 1, 2),
    entry(34, "TQ1_0", 256, 48 + 4 + 2),
    entry(35, "TQ2_0", 256, 64 + 2),
    entry(39, "MXFP4", 32, 1 + 16),
    entry(40, "NVFP4", 64, 4 + 32),
    entry(41, "Q1_0", 128, 2 + 16),
    entry(42, "Q2_0", 64, 2 + 16),
};

}  // namespace

const TensorType* find_tensor_type(std::uint32_t id) {
  const auto at = std::lower_bound(kTypes.begin(), kTypes.end(), id, [](const TensorType& type, std::uint32_t wanted) {
    return static_cast<std::uint32_t>(type.id) < wanted;
  });
  return at != kTypes.end() && static_cast<std::uint32_t>(at->id) == id ? &*at : nullptr;
}

std::span<const TensorType> all_tensor_types() {
  return kTypes;
}

std::string_view removed_tensor_type(std::uint32_t id) {
  switch (id) {
    case 4:
      return "Q4_2";
    case 5:
      return "Q4_3";
    case 31:
      return "Q4_0_4_4";
    case 32:
      return "Q4_0_4_8";
    case 33:
      return "Q4_0_8_8";
    case 36:
      return "IQ4_NL_4_4";
    case 37:
      return "IQ4_NL_4_8";
    case 38:
      return "IQ4_NL_8_8";
    default:
      return {};
  }
}

std::optional<std::uint64_t> tensor_bytes(const TensorType& type, std::uint64_t elements) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / type.block_elements, std::uint64_t{type.block_bytes}, &bytes)) return {};
  return bytes;
}

}  // namespace kazeia::gguf
