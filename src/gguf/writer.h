// Writes a GGUF v3 file front to back: metadata, tensor descriptions, then the tensors' data as a stream, so
// that memory stays at the size of the header whatever the model's size.
//
//   Header header;
//   header.add_string("general.architecture", "qwen3");
//   header.add_tensor("output_norm.weight", TypeId::kF32, {2560});
//   KAZEIA_ASSIGN(Writer writer, Writer::create(path, header));
//   KAZEIA_TRY(writer.write(bytes));   // the data of the declared tensors in order, in pieces of any size
//   KAZEIA_TRY(writer.commit());
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "gguf/reader.h"
#include "gguf/types.h"
#include "gguf/value.h"

namespace kazeia::gguf {

// Everything before the data. Keys and tensor names must be new, non-empty and within the reader's limits,
// shapes valid for their type: programmer errors otherwise.
class Header {
 public:
  void add_u16(std::string_view key, std::uint16_t value);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_i32(std::string_view key, std::int32_t value);
  void add_u64(std::string_view key, std::uint64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  // The same value as in another file; what `prepare` copies through.
  void add_value(std::string_view key, const Value& value);

  // Data follow in the order of these calls. At most 4 dims, [columns, rows, ...].
  void add_tensor(std::string_view name, TypeId type, std::span<const std::uint64_t> dims);
  void add_tensor(std::string_view name, TypeId type, std::initializer_list<std::uint64_t> dims) {
    add_tensor(name, type, std::span<const std::uint64_t>(dims.begin(), dims.size()));
  }

  std::uint64_t tensor_count() const { return tensor_bytes_.size(); }
  // Of tensor `index`, without padding.
  std::uint64_t tensor_bytes(std::size_t index) const { return tensor_bytes_[index]; }
  // The size of the finished file.
  std::uint64_t file_bytes() const;
  // The bytes up to the first tensor's data, padding included.
  std::string serialise() const;

 private:
  void begin_entry(std::string_view key, ValueType type);
  std::uint64_t serialised_bytes() const;

  std::string metadata_;
  std::uint64_t entry_count_ = 0;
  std::string tensors_;  // their descriptions
  std::vector<std::uint64_t> tensor_bytes_;
  std::uint64_t data_bytes_ = 0;  // of all tensors so far, each padded to the alignment
};

// Errors are kWrite and leave nothing behind, as with AtomicFileWriter.
class Writer {
 public:
  static Result<Writer> create(const std::string& path, const Header& header);

  // The next bytes of tensor data. More bytes than were declared are a programmer error.
  Status write(std::span<const std::byte> data);
  // Refuses (kWrite) while data are missing.
  Status commit();
  std::uint64_t bytes_written() const { return file_.bytes_written(); }
  // Where the file can be read, for a last check, before commit() gives it its name.
  const std::string& temporary_path() const { return file_.temporary_path(); }

 private:
  Writer(AtomicFileWriter file, std::vector<std::uint64_t> tensor_bytes)
      : file_(std::move(file)), tensor_bytes_(std::move(tensor_bytes)) {}

  AtomicFileWriter file_;
  std::vector<std::uint64_t> tensor_bytes_;
  std::size_t tensor_ = 0;  // the one being written
  std::uint64_t done_ = 0;  // bytes of it
};

}  // namespace kazeia::gguf
