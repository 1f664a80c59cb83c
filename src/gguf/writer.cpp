#include "gguf/writer.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia::gguf {
namespace {

constexpr std::uint64_t kPreambleBytes = 4 + 4 + 8 + 8;

std::uint64_t padding_after(std::uint64_t bytes) {
  return (kDefaultAlignment - bytes % kDefaultAlignment) % kDefaultAlignment;
}

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_string(std::string& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  out.append(text);
}

}  // namespace

void Header::begin_entry(std::string_view key, ValueType type) {
  assert(!key.empty() && key.size() <= kMaxKeyBytes);
  append_string(metadata_, key);
  append(metadata_, type);
  ++entry_count_;
}

void Header::add_u16(std::string_view key, std::uint16_t value) {
  begin_entry(key, ValueType::kU16);
  append(metadata_, value);
}

void Header::add_u32(std::string_view key, std::uint32_t value) {
  begin_entry(key, ValueType::kU32);
  append(metadata_, value);
}

void Header::add_i32(std::string_view key, std::int32_t value) {
  begin_entry(key, ValueType::kI32);
  append(metadata_, value);
}

void Header::add_u64(std::string_view key, std::uint64_t value) {
  begin_entry(key, ValueType::kU64);
  append(metadata_, value);
}

void Header::add_f32(std::string_view key, float value) {
  begin_entry(key, ValueType::kF32);
  append(metadata_, value);
}

void Header::add_bool(std::string_view key, bool value) {
  begin_entry(key, ValueType::kBool);
  append(metadata_, static_cast<std::uint8_t>(value));
}

void Header::add_string(std::string_view key, std::string_view value) {
  begin_entry(key, ValueType::kString);
  append_string(metadata_, value);
}

void Header::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_entry(key, ValueType::kArray);
  append(metadata_, ValueType::kString);
  append(metadata_, std::uint64_t{values.size()});
  for (const std::string& value : values) append_string(metadata_, value);
}

void Header::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin_entry(key, ValueType::kArray);
  append(metadata_, ValueType::kI32);
  append(metadata_, std::uint64_t{values.size()});
  for (const std::int32_t value : values) append(metadata_, value);
}

void Header::add_f32s(std::string_view key, std::span<const float> values) {
  begin_entry(key, ValueType::kArray);
  append(metadata_, ValueType::kF32);
  append(metadata_, std::uint64_t{values.size()});
  for (const float value : values) append(metadata_, value);
}

void Header::add_value(std::string_view key, const Value& value) {
  begin_entry(key, value.type);
  if (value.is_array()) {
    append(metadata_, value.element);
    append(metadata_, value.count);
  }
  metadata_.append(reinterpret_cast<const char*>(value.data.data()), value.data.size());
}

void Header::add_tensor(std::string_view name, TypeId type, std::span<const std::uint64_t> dims) {
  assert(!name.empty() && name.size() <= kMaxTensorNameBytes);
  assert(!dims.empty() && dims.size() <= 4);
  const TensorType& layout = tensor_type(type);
  assert(dims[0] % layout.block_elements == 0);
  append_string(tensors_, name);
  append(tensors_, static_cast<std::uint32_t>(dims.size()));
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : dims) {
    append(tensors_, dim);
    elements *= dim;
  }
  append(tensors_, type);
  append(tensors_, data_bytes_);
  tensor_bytes_.push_back(elements / layout.block_elements * layout.block_bytes);
  data_bytes_ += tensor_bytes_.back() + padding_after(tensor_bytes_.back());
}

std::uint64_t Header::serialised_bytes() const {
  const std::uint64_t bytes = kPreambleBytes + metadata_.size() + tensors_.size();
  return bytes + padding_after(bytes);
}

std::uint64_t Header::file_bytes() const {
  return serialised_bytes() + data_bytes_;
}

std::string Header::serialise() const {
  std::string out;
  out.reserve(serialised_bytes());
  out.append("GGUF");
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{tensor_bytes_.size()});
  append(out, entry_count_);
  out.append(metadata_);
  out.append(tensors_);
  out.append(padding_after(out.size()), '\0');
  return out;
}

Result<Writer> Writer::create(const std::string& path, const Header& header) {
  KAZEIA_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path));
  KAZEIA_TRY(file.write(header.serialise()));
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < header.tensor_count(); ++i) sizes.push_back(header.tensor_bytes(i));
  return Writer(std::move(file), std::move(sizes));
}

Status Writer::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    assert(tensor_ < tensor_bytes_.size());
    const std::uint64_t size = tensor_bytes_[tensor_];
    const auto piece = data.first(std::min<std::uint64_t>(data.size(), size - done_));
    KAZEIA_TRY(file_.write(piece));
    done_ += piece.size();
    data = data.subspan(piece.size());
    if (done_ == size) {
      KAZEIA_TRY(file_.write(std::string(padding_after(size), '\0')));
      ++tensor_;
      done_ = 0;
    }
  }
  return {};
}

Status Writer::commit() {
  if (tensor_ != tensor_bytes_.size()) {
    return Error(ErrorCode::kWrite, "the tensor data are incomplete, so the file was not written");
  }
  return file_.commit();
}

}  // namespace kazeia::gguf
