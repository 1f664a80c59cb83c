// A strict, bounded reader of GGUF v2 and v3. It runs before anything else sees a file, so it trusts no
// number in it: every length, count, offset, type and dimension is checked against the file's size with
// arithmetic that cannot overflow. Work and memory are linear in the size of the header.
//
// Zero-copy: keys, strings and names are views into the bytes given to parse(), which must outlive the File.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "gguf/types.h"
#include "gguf/value.h"

namespace kazeia::gguf {

// Far above any real model; a count beyond them is damage or an attack. Upstream's own duplicate checks are
// quadratic, so these also bound its load time.
inline constexpr std::uint64_t kMaxMetadataEntries = 65536;
inline constexpr std::uint64_t kMaxTensors = 65536;
inline constexpr std::uint64_t kMaxKeyBytes = 65535;      // the format's own limit
inline constexpr std::uint64_t kMaxTensorNameBytes = 63;  // upstream's buffer of 64 with its terminator
inline constexpr int kMaxArrayDepth = 4;
inline constexpr std::uint32_t kMaxAlignment = 1u << 20;
inline constexpr std::uint32_t kDefaultAlignment = 32;

struct Entry {
  std::string_view key;
  Value value;
};

struct Tensor {
  std::string_view name;
  const TensorType* type = nullptr;
  std::uint32_t dimension_count = 1;              // 1..4
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // [columns, rows, ...]; unused ones are 1
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;        // of the data, from the start of the file; a multiple of the alignment
  std::uint64_t entry_offset = 0;  // of this tensor's description, for error messages
};

// A file (or one part of a split model) that has passed every check of parse().
class File {
 public:
  std::uint32_t version() const { return version_; }
  std::uint32_t alignment() const { return alignment_; }
  std::uint64_t size() const { return bytes_.size(); }
  // Where tensor data begins; the size of the file if there is none.
  std::uint64_t data_offset() const { return data_offset_; }
  std::span<const Entry> metadata() const { return metadata_; }  // in file order
  std::span<const Tensor> tensors() const { return tensors_; }   // in file order
  const Value* find(std::string_view key) const;                 // null if absent
  const Tensor* find_tensor(std::string_view name) const;        // null if absent
  std::span<const std::byte> data(const Tensor& tensor) const { return bytes_.subspan(tensor.offset, tensor.bytes); }

 private:
  friend class Parser;
  std::span<const std::byte> bytes_;
  std::uint32_t version_ = 0;
  std::uint32_t alignment_ = kDefaultAlignment;
  std::uint64_t data_offset_ = 0;
  std::vector<Entry> metadata_;
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> by_key_;   // indices of metadata_, ascending by key
  std::vector<std::uint32_t> by_name_;  // indices of tensors_, ascending by name
};

// kFile for what is not a well-formed GGUF file, kUnsupported for a well-formed one of another version, byte
// order or tensor type. The message names the byte and the reason.
Result<File> parse(std::span<const std::byte> bytes);

// A model on disk: one file, or all parts of a split one. Owns the mappings that the views point into.
class ModelFile {
 public:
  // The first part (or only file) holds the metadata.
  std::span<const File> parts() const { return parts_; }
  const File& metadata() const { return parts_.front(); }
  const std::vector<std::string>& paths() const { return paths_; }
  std::uint64_t total_bytes() const;
  // Bytes of all tensors of all parts.
  std::uint64_t tensor_bytes() const;

 private:
  friend Result<ModelFile> open_gguf(const std::string& path);
  std::vector<MappedFile> mappings_;
  std::vector<File> parts_;
  std::vector<std::string> paths_;
};

// Maps and parses `path` and, when it is the first part of a split model ("-00001-of-0000N.gguf"), its
// siblings; a missing or foreign part is named. Reads the header pages only.
Result<ModelFile> open_gguf(const std::string& path);

}  // namespace kazeia::gguf
