// Tests only: builds GGUF bytes in memory, valid unless told otherwise, so that each test breaks one thing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/reader.h"

namespace kazeia::gguf {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string raw_string(std::string_view text) {
  return raw(std::uint64_t{text.size()}) + std::string(text);
}
inline std::string operator""_s(const char* text, std::size_t size) {
  return {text, size};
}

class TestFile {
 public:
  // An entry with that key is replaced. `payload` is type-dependent bytes.
  TestFile& entry(std::string_view key, ValueType type, std::string payload) {
    payload = raw(type) + payload;
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const auto& one) { return one.first == key; });
    if (at != entries_.end()) {
      at->second = std::move(payload);
    } else {
      entries_.emplace_back(key, std::move(payload));
    }
    return *this;
  }
  TestFile& u32(std::string_view key, std::uint32_t value) { return entry(key, ValueType::kU32, raw(value)); }
  TestFile& u16(std::string_view key, std::uint16_t value) { return entry(key, ValueType::kU16, raw(value)); }
  TestFile& i32(std::string_view key, std::int32_t value) { return entry(key, ValueType::kI32, raw(value)); }
  TestFile& f32(std::string_view key, float value) { return entry(key, ValueType::kF32, raw(value)); }
  TestFile& boolean(std::string_view key, bool value) { return entry(key, ValueType::kBool, raw(value)); }
  TestFile& string(std::string_view key, std::string_view value) {
    return entry(key, ValueType::kString, raw_string(value));
  }
  TestFile& array(std::string_view key, ValueType element, std::uint64_t count, const std::string& payload) {
    return entry(key, ValueType::kArray, raw(element) + raw(count) + payload);
  }
  TestFile& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string payload;
    for (const auto& value : values) payload += raw_string(value);
    return array(key, ValueType::kString, values.size(), payload);
  }
  TestFile& i32s(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string payload;
    for (const auto value : values) payload += raw(value);
    return array(key, ValueType::kI32, values.size(), payload);
  }
  TestFile& without(std::string_view key) {
    std::erase_if(entries_, [&](const auto& one) { return one.first == key; });
    return *this;
  }
  // A second entry of the same key, which entry() would replace.
  TestFile& again(std::string_view key) {
    entries_.emplace_back(key, raw(ValueType::kU8) + "x");
    return *this;
  }

  TestFile& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type = 0,
                   std::optional<std::uint64_t> offset = {}) {
    std::string bytes = raw_string(name) + raw(static_cast<std::uint32_t>(dims.size()));
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : dims) {
      bytes += raw(dim);
      elements *= dim;
    }
    bytes += raw(type) + raw(offset.value_or(data_bytes_));
    tensors_.push_back(std::move(bytes));
    names_.emplace_back(name);
    const TensorType* layout = find_tensor_type(type);
    // Shapes that are wrong on purpose still need some data behind them, not their own nonsense size.
    const std::uint64_t size =
        layout == nullptr || elements > 100000 ? 32 : elements / layout->block_elements * layout->block_bytes;
    data_bytes_ += (size + alignment_ - 1) / alignment_ * alignment_;
    return *this;
  }
  TestFile& without_tensor(std::string_view name) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    tensors_.erase(tensors_.begin() + (at - names_.begin()));
    names_.erase(at);
    return *this;
  }
  TestFile& version(std::uint32_t value) {
    version_ = value;
    return *this;
  }
  TestFile& alignment(std::uint32_t value) {
    alignment_ = value;
    return u32("general.alignment", value);
  }

  std::string bytes() const {
    std::string out =
        "GGUF" + raw(version_) + raw(std::uint64_t{tensors_.size()}) + raw(std::uint64_t{entries_.size()});
    for (const auto& [key, payload] : entries_) out += raw_string(key) + payload;
    for (const std::string& tensor : tensors_) out += tensor;
    if (!tensors_.empty()) out.append((alignment_ - out.size() % alignment_) % alignment_, '\0');
    return out + std::string(data_bytes_, 'd');
  }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  std::vector<std::string> tensors_;
  std::vector<std::string> names_;
  std::uint32_t version_ = 3;
  std::uint64_t alignment_ = 32;
  std::uint64_t data_bytes_ = 0;
};

inline std::span<const std::byte> view(const std::string& bytes) {
  return std::as_bytes(std::span<const char>(bytes.data(), bytes.size()));
}

// What parse() says against `bytes`, or "" if it accepts them.
inline std::string refusal(const std::string& bytes) {
  // A copy of exactly that size, so that the address sanitizer sees a read past its end.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const Result<File> file = parse(std::as_bytes(std::span<const char>(exact.data(), exact.size())));
  return file.ok() ? "" : file.error().message();
}

// A folder that goes away with the test.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-gguf-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~TestFolder() { std::filesystem::remove_all(folder_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
  }
  std::size_t count() const {
    const auto entries = std::filesystem::directory_iterator(folder_);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

 private:
  std::filesystem::path folder_;
};

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace kazeia::gguf
