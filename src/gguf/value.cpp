#include "gguf/value.h"

#include <cstring>

namespace kazeia::gguf {
namespace {

// The file's bytes have no alignment, so every number is copied out. The format is little-endian, as is every
// machine that this engine builds for.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::optional<std::uint64_t> non_negative(std::int64_t value) {
  if (value < 0) return {};
  return static_cast<std::uint64_t>(value);
}

std::optional<std::uint64_t> integer_at(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::kU8:
      return load<std::uint8_t>(at);
    case ValueType::kU16:
      return load<std::uint16_t>(at);
    case ValueType::kU32:
      return load<std::uint32_t>(at);
    case ValueType::kU64:
      return load<std::uint64_t>(at);
    case ValueType::kI8:
      return non_negative(load<std::int8_t>(at));
    case ValueType::kI16:
      return non_negative(load<std::int16_t>(at));
    case ValueType::kI32:
      return non_negative(load<std::int32_t>(at));
    case ValueType::kI64:
      return non_negative(load<std::int64_t>(at));
    default:
      return {};
  }
}

// Length of the valid UTF-8 sequence at `at`, or 0.
std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and code points past the last one.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  // C1 controls are two bytes long, and terminals obey them like the one-byte ones.
  if (first == 0xC2 && byte(1) < 0xA0) return 0;
  return length;
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return "u8";
    case ValueType::kI8:
      return "i8";
    case ValueType::kU16:
      return "u16";
    case ValueType::kI16:
      return "i16";
    case ValueType::kU32:
      return "u32";
    case ValueType::kI32:
      return "i32";
    case ValueType::kF32:
      return "f32";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    case ValueType::kArray:
      return "array";
    case ValueType::kU64:
      return "u64";
    case ValueType::kI64:
      return "i64";
    case ValueType::kF64:
      return "f64";
  }
  return "unknown";
}

std::size_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

std::optional<std::uint64_t> Value::as_unsigned() const {
  if (is_array()) return {};
  return integer_at(type, data.data());
}

std::optional<double> Value::as_real() const {
  if (type == ValueType::kF32) return double{load<float>(data.data())};
  if (type == ValueType::kF64) return load<double>(data.data());
  return {};
}

std::optional<bool> Value::as_bool() const {
  if (type != ValueType::kBool) return {};
  return data[0] != std::byte{0};
}

std::optional<std::string_view> Value::as_string() const {
  if (type != ValueType::kString) return {};
  return std::string_view(reinterpret_cast<const char*>(data.data()), data.size()).substr(8);
}

std::optional<std::uint64_t> Value::unsigned_at(std::uint64_t index) const {
  const std::size_t width = value_type_bytes(element);
  if (width == 0 || index >= count) return {};
  const std::byte* at = data.data() + index * width;
  if (element == ValueType::kBool) return load<std::uint8_t>(at) != 0 ? 1u : 0u;
  return integer_at(element, at);
}

std::optional<double> Value::number_at(std::uint64_t index) const {
  const std::size_t width = value_type_bytes(element);
  if (width == 0 || index >= count) return {};
  const std::byte* at = data.data() + index * width;
  switch (element) {
    case ValueType::kF32:
      return double{load<float>(at)};
    case ValueType::kF64:
      return load<double>(at);
    case ValueType::kI8:
      return static_cast<double>(load<std::int8_t>(at));
    case ValueType::kI16:
      return static_cast<double>(load<std::int16_t>(at));
    case ValueType::kI32:
      return static_cast<double>(load<std::int32_t>(at));
    case ValueType::kI64:
      return static_cast<double>(load<std::int64_t>(at));
    default: {
      const auto whole = unsigned_at(index);
      if (!whole) return {};
      return static_cast<double>(*whole);
    }
  }
}

std::vector<std::string_view> Value::strings() const {
  std::vector<std::string_view> result;
  if (!is_array() || element != ValueType::kString) return result;
  result.reserve(count);
  const std::byte* at = data.data();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto length = load<std::uint64_t>(at);
    result.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return result;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_sequence(text, at);
    const std::string_view piece = length == 0 ? std::string_view("?") : text.substr(at, length);
    if (result.size() + piece.size() > limit) return result + "...";
    const bool control = piece.size() == 1 && (static_cast<unsigned char>(piece[0]) < 0x20 || piece[0] == 0x7F);
    result += control ? std::string_view("?") : piece;
    at += length == 0 ? 1 : length;
  }
  return result;
}

}  // namespace kazeia::gguf
