// Tensor element types of the format, as numbers of our own: nothing here is asked of ggml.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kazeia::gguf {

// Ids as they stand in files. Only the ones this engine writes or treats specially have a name here; the
// table behind find_tensor_type() knows all of them.
enum class TypeId : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ4_K = 12,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ4_NL = 20,
  kI8 = 24,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct TensorType {
  TypeId id;
  std::string_view name;         // "Q4_0"
  std::uint32_t block_elements;  // a row is a whole number of blocks
  std::uint32_t block_bytes;
};

// Null for an id that is unknown or removed.
const TensorType* find_tensor_type(std::uint32_t id);
inline const TensorType& tensor_type(TypeId id) {
  return *find_tensor_type(static_cast<std::uint32_t>(id));
}
// Every type, ascending by id.
std::span<const TensorType> all_tensor_types();
// The name of a type that files once had and that no current program reads ("Q4_2"), or empty.
std::string_view removed_tensor_type(std::uint32_t id);

// ggml's GGML_QNT_VERSION, which this room may not include: what files say under general.quantization_version.
inline constexpr std::uint32_t kQuantizationVersion = 2;

// `elements` must be a multiple of the block; empty if the product does not fit 64 bits.
std::optional<std::uint64_t> tensor_bytes(const TensorType& type, std::uint64_t elements);

}  // namespace kazeia::gguf
