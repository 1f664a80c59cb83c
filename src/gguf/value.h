// One metadata value of a GGUF file: a typed view into the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kazeia::gguf {

enum class ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view value_type_name(ValueType type);  // "u32", "string", ...
// Bytes of one value; 0 for strings and arrays, whose size stands in the file.
std::size_t value_type_bytes(ValueType type);

// Made by parse() only, which has checked every length in `data`; the accessors rely on that.
// Accessors return nothing when the value has another type.
struct Value {
  ValueType type = ValueType::kU8;
  ValueType element = ValueType::kU8;  // of an array; equal to `type` otherwise
  std::uint64_t count = 1;             // elements of an array, 1 otherwise
  std::span<const std::byte> data;     // the payload, without type and count
  std::uint64_t offset = 0;            // of `data` in the file

  bool is_array() const { return type == ValueType::kArray; }

  std::optional<std::uint64_t> as_unsigned() const;  // any integer type, not negative
  std::optional<double> as_real() const;             // F32 or F64
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  // Element `index` < count of an array of integers or booleans (or index 0 of such a scalar); negative values
  // give nothing.
  std::optional<std::uint64_t> unsigned_at(std::uint64_t index) const;
  // Element `index` < count of an array of any fixed-size type, or index 0 of a scalar, as a real number.
  std::optional<double> number_at(std::uint64_t index) const;
  // All strings of a string array, in order; views into the file.
  std::vector<std::string_view> strings() const;
};

// File-controlled text made safe for a terminal and for one line: control characters and invalid UTF-8 become
// '?', and text above `limit` bytes is cut with "...".
std::string printable(std::string_view text, std::size_t limit = 80);

}  // namespace kazeia::gguf
