#include "gguf/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include <fmt/format.h>

namespace kazeia::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF data is read in place");

namespace {

constexpr std::string_view kDamaged = "The file is damaged or was not fully downloaded: get it again";

Error malformed(std::uint64_t offset, const std::string& reason) {
  return Error(ErrorCode::kFile, fmt::format("invalid GGUF file at byte {}: {}", offset, reason),
               std::string(kDamaged));
}

Error unsupported(std::uint64_t offset, const std::string& reason, std::string next) {
  return Error(ErrorCode::kUnsupported, fmt::format("unsupported GGUF file at byte {}: {}", offset, reason),
               std::move(next));
}

// Smallest possible descriptions, which bound how many a file of a given size can hold.
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;           // key, type, a one-byte value
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dimensions, type, offset

}  // namespace

// Walks the header once. Invariant: at_ <= bytes_.size(), and nothing is read before take() has checked it.
class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : bytes_(bytes) { file_.bytes_ = bytes; }

  Result<File> run() {
    KAZEIA_TRY(read_preamble());
    KAZEIA_TRY(read_metadata());
    KAZEIA_TRY(read_alignment());
    KAZEIA_TRY(read_tensors());
    KAZEIA_TRY(place_tensors());
    return std::move(file_);
  }

 private:
  std::uint64_t remaining() const { return bytes_.size() - at_; }

  Error truncated(std::string_view what) const {
    return malformed(at_, fmt::format("the file ends ({} bytes) in the middle of {}", bytes_.size(), what));
  }

  template <typename T>
  Result<T> take(std::string_view what) {
    if (remaining() < sizeof(T)) return truncated(what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> take_string(std::string_view what) {
    KAZEIA_ASSIGN(const auto length, take<std::uint64_t>(what));
    if (length > remaining()) {
      return malformed(at_ - 8, fmt::format("{} claims {} bytes, but only {} are left", what, length, remaining()));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  Status read_preamble() {
    constexpr std::string_view kMagic = "GGUF";
    if (bytes_.empty()) return malformed(0, "the file is empty");
    const std::size_t shown = std::min(kMagic.size(), bytes_.size());
    if (std::memcmp(bytes_.data(), kMagic.data(), shown) != 0) {
      return Error(ErrorCode::kFile, "not a GGUF file: it does not begin with \"GGUF\"",
                   "Give a .gguf model; other formats have to be converted first");
    }
    if (bytes_.size() < kMagic.size()) return truncated("the magic number");
    at_ = kMagic.size();
    KAZEIA_ASSIGN(file_.version_, take<std::uint32_t>("the version number"));
    const std::uint32_t swapped = __builtin_bswap32(file_.version_);
    if (swapped == 2 || swapped == 3) {
      return unsupported(4, "it is big-endian", "Convert it to little-endian on the machine that made it");
    }
    if (file_.version_ == 1) {
      return unsupported(4, "it has version 1, which is obsolete", "Convert the model again with a current converter");
    }
    if (file_.version_ < 2 || file_.version_ > 3) {
      return unsupported(4, fmt::format("it has version {}, and this engine reads 2 and 3", file_.version_),
                         "Update kazeia, or get the file in version 3");
    }
    KAZEIA_ASSIGN(tensor_count_, take<std::uint64_t>("the tensor count"));
    KAZEIA_ASSIGN(entry_count_, take<std::uint64_t>("the metadata count"));
    if (tensor_count_ > kMaxTensors || tensor_count_ > remaining() / kMinTensorBytes) {
      return malformed(8, fmt::format("it claims {} tensors, more than its {} bytes can describe or any model has",
                                      tensor_count_, bytes_.size()));
    }
    if (entry_count_ > kMaxMetadataEntries || entry_count_ > remaining() / kMinEntryBytes) {
      return malformed(16,
                       fmt::format("it claims {} metadata entries, more than its {} bytes can hold or any model has",
                                   entry_count_, bytes_.size()));
    }
    return {};
  }

  Status read_metadata() {
    file_.metadata_.reserve(entry_count_);
    for (std::uint64_t i = 0; i < entry_count_; ++i) {
      const std::uint64_t begin = at_;
      Entry entry;
      KAZEIA_ASSIGN(entry.key, take_string("a metadata key"));
      if (entry.key.empty()) return malformed(begin, fmt::format("metadata entry {} has an empty key", i));
      if (entry.key.size() > kMaxKeyBytes) {
        return malformed(
            begin, fmt::format("a metadata key has {} bytes, at most {} are allowed", entry.key.size(), kMaxKeyBytes));
      }
      // Upstream compares names as C strings: a NUL inside would make two of them equal there and not here.
      if (entry.key.find('\0') != std::string_view::npos) return malformed(begin, "a metadata key contains a NUL byte");
      KAZEIA_TRY(read_value(entry));
      file_.metadata_.push_back(entry);
    }
    file_.by_key_ = sorted(file_.metadata_, [](const Entry& entry) { return entry.key; });
    if (const Entry* twice = repeated(file_.metadata_, file_.by_key_, [](const Entry& entry) { return entry.key; })) {
      return malformed(twice->value.offset, fmt::format("metadata key '{}' appears twice", printable(twice->key)));
    }
    return {};
  }

  Result<ValueType> take_value_type(std::string_view key) {
    KAZEIA_ASSIGN(const auto id, take<std::uint32_t>("a metadata value"));
    if (id > static_cast<std::uint32_t>(ValueType::kF64)) {
      return malformed(at_ - 4, fmt::format("metadata key '{}' has the unknown value type {}", printable(key), id));
    }
    return static_cast<ValueType>(id);
  }

  Status read_value(Entry& entry) {
    Value& value = entry.value;
    KAZEIA_ASSIGN(value.type, take_value_type(entry.key));
    value.element = value.type;
    if (value.is_array()) {
      KAZEIA_ASSIGN(value.element, take_value_type(entry.key));
      KAZEIA_ASSIGN(value.count, take<std::uint64_t>("an array's length"));
    }
    value.offset = at_;
    KAZEIA_TRY(skip_elements(entry.key, value.element, value.count, 1));
    value.data = bytes_.subspan(value.offset, at_ - value.offset);
    return {};
  }

  // Checks and steps over `count` values of `type`.
  Status skip_elements(std::string_view key, ValueType type, std::uint64_t count, int depth) {
    const std::size_t width = value_type_bytes(type);
    // A string or an inner array is at least its own length field (12 bytes with an inner array's type).
    const std::uint64_t least = width != 0 ? width : type == ValueType::kString ? 8 : 12;
    if (count > remaining() / least) {
      return malformed(at_, fmt::format("metadata key '{}' claims {} values of type {}, but only {} bytes are left",
                                        printable(key), count, value_type_name(type), remaining()));
    }
    if (width != 0) {
      if (type == ValueType::kBool) KAZEIA_TRY(check_bools(key, count));
      at_ += count * width;
      return {};
    }
    if (type == ValueType::kString) {
      for (std::uint64_t i = 0; i < count; ++i) {
        // take_string() without its Result: this loop runs over whole vocabularies.
        std::uint64_t length = 0;
        if (remaining() < sizeof(length)) return truncated(fmt::format("metadata key '{}'", printable(key)));
        std::memcpy(&length, bytes_.data() + at_, sizeof(length));
        if (length > remaining() - sizeof(length)) {
          return malformed(at_, fmt::format("a string of metadata key '{}' claims {} bytes, but only {} are left",
                                            printable(key), length, remaining() - sizeof(length)));
        }
        at_ += sizeof(length) + length;
      }
      return {};
    }
    if (depth >= kMaxArrayDepth) {
      return malformed(at_,
                       fmt::format("metadata key '{}' nests arrays deeper than {}", printable(key), kMaxArrayDepth));
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      KAZEIA_ASSIGN(const ValueType inner, take_value_type(key));
      KAZEIA_ASSIGN(const auto inner_count, take<std::uint64_t>("an inner array's length"));
      KAZEIA_TRY(skip_elements(key, inner, inner_count, depth + 1));
    }
    return {};
  }

  Status check_bools(std::string_view key, std::uint64_t count) const {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (bytes_[at_ + i] > std::byte{1}) {
        return malformed(at_ + i,
                         fmt::format("metadata key '{}' has a boolean that is neither 0 nor 1", printable(key)));
      }
    }
    return {};
  }

  Status read_alignment() {
    const Value* value = file_.find("general.alignment");
    if (value == nullptr) return {};
    if (value->type != ValueType::kU32) {
      return malformed(value->offset,
                       fmt::format("general.alignment is {}, it must be u32", value_type_name(value->type)));
    }
    file_.alignment_ = static_cast<std::uint32_t>(*value->as_unsigned());
    if (!std::has_single_bit(file_.alignment_) || file_.alignment_ > kMaxAlignment) {
      return malformed(value->offset, fmt::format("general.alignment is {}, it must be a power of two up to {}",
                                                  file_.alignment_, kMaxAlignment));
    }
    return {};
  }

  Status read_tensors() {
    file_.tensors_.reserve(tensor_count_);
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      Tensor tensor;
      KAZEIA_TRY(read_tensor(tensor, i));
      file_.tensors_.push_back(tensor);
    }
    file_.by_name_ = sorted(file_.tensors_, [](const Tensor& tensor) { return tensor.name; });
    if (const Tensor* twice =
            repeated(file_.tensors_, file_.by_name_, [](const Tensor& tensor) { return tensor.name; })) {
      return malformed(twice->entry_offset, fmt::format("tensor '{}' appears twice", printable(twice->name)));
    }
    return {};
  }

  // Leaves tensor.offset relative to the data section, whose start is not known yet.
  Status read_tensor(Tensor& tensor, std::uint64_t index) {
    tensor.entry_offset = at_;
    KAZEIA_ASSIGN(tensor.name, take_string("a tensor name"));
    if (tensor.name.empty()) return malformed(tensor.entry_offset, fmt::format("tensor {} has an empty name", index));
    if (tensor.name.size() > kMaxTensorNameBytes) {
      return malformed(tensor.entry_offset, fmt::format("a tensor name has {} bytes, at most {} are allowed",
                                                        tensor.name.size(), kMaxTensorNameBytes));
    }
    if (tensor.name.find('\0') != std::string_view::npos) {
      return malformed(tensor.entry_offset, "a tensor name contains a NUL byte");
    }
    const std::string name = printable(tensor.name);
    KAZEIA_ASSIGN(tensor.dimension_count, take<std::uint32_t>("a tensor description"));
    if (tensor.dimension_count < 1 || tensor.dimension_count > tensor.dims.size()) {
      return malformed(at_ - 4, fmt::format("tensor '{}' has {} dimensions, it must have 1 to {}", name,
                                            tensor.dimension_count, tensor.dims.size()));
    }
    tensor.elements = 1;
    for (std::uint32_t d = 0; d < tensor.dimension_count; ++d) {
      KAZEIA_ASSIGN(tensor.dims[d], take<std::uint64_t>("a tensor description"));
      if (tensor.dims[d] == 0) return malformed(at_ - 8, fmt::format("dimension {} of tensor '{}' is 0", d, name));
      // Signed 64-bit is what upstream counts with.
      if (__builtin_mul_overflow(tensor.elements, tensor.dims[d], &tensor.elements) || tensor.elements > INT64_MAX) {
        return malformed(at_ - 8, fmt::format("tensor '{}' has more elements than 63 bits can count", name));
      }
    }
    KAZEIA_TRY(read_tensor_type(tensor, name));
    KAZEIA_ASSIGN(tensor.offset, take<std::uint64_t>("a tensor description"));
    if (tensor.offset % file_.alignment_ != 0) {
      return malformed(at_ - 8, fmt::format("the data of tensor '{}' begin at offset {}, which is not a multiple of {}",
                                            name, tensor.offset, file_.alignment_));
    }
    return {};
  }

  Status read_tensor_type(Tensor& tensor, const std::string& name) {
    KAZEIA_ASSIGN(const auto id, take<std::uint32_t>("a tensor description"));
    tensor.type = find_tensor_type(id);
    if (tensor.type == nullptr) {
      const std::string_view removed = removed_tensor_type(id);
      if (!removed.empty()) {
        return unsupported(at_ - 4,
                           fmt::format("tensor '{}' has the type {}, which was removed from the format", name, removed),
                           "Quantise the model again, for example to Q4_0");
      }
      return unsupported(at_ - 4,
                         fmt::format("tensor '{}' has the type number {}, which this engine does not know", name, id),
                         "Update kazeia, or choose another quantisation");
    }
    if (tensor.dims[0] % tensor.type->block_elements != 0) {
      return malformed(tensor.entry_offset,
                       fmt::format("rows of tensor '{}' have {} elements, not a multiple of {}'s {}", name,
                                   tensor.dims[0], tensor.type->name, tensor.type->block_elements));
    }
    const auto size = tensor_bytes(*tensor.type, tensor.elements);
    if (!size || *size > INT64_MAX) {
      return malformed(tensor.entry_offset, fmt::format("tensor '{}' has more bytes than 63 bits can count", name));
    }
    tensor.bytes = *size;
    return {};
  }

  Status place_tensors() {
    const std::uint64_t padding = (file_.alignment_ - at_ % file_.alignment_) % file_.alignment_;
    file_.data_offset_ = bytes_.size();
    if (file_.tensors_.empty()) return {};
    if (padding > remaining()) return truncated("the padding before the tensor data");
    file_.data_offset_ = at_ + padding;
    const std::uint64_t room = bytes_.size() - file_.data_offset_;
    for (Tensor& tensor : file_.tensors_) {
      if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
        return malformed(
            tensor.entry_offset,
            fmt::format("tensor '{}' has {} bytes at data offset {}, but the file has only {} bytes of data",
                        printable(tensor.name), tensor.bytes, tensor.offset, room));
      }
      tensor.offset += file_.data_offset_;
    }
    return check_overlaps();
  }

  Status check_overlaps() const {
    std::vector<const Tensor*> order;
    order.reserve(file_.tensors_.size());
    for (const Tensor& tensor : file_.tensors_) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Tensor& before = *order[i - 1];
      const Tensor& after = *order[i];
      if (after.offset < before.offset + before.bytes) {
        return malformed(after.entry_offset, fmt::format("tensors '{}' and '{}' overlap at byte {}",
                                                         printable(before.name), printable(after.name), after.offset));
      }
    }
    return {};
  }

  template <typename T, typename Name>
  static std::vector<std::uint32_t> sorted(const std::vector<T>& items, Name name) {
    std::vector<std::uint32_t> order(items.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return name(items[a]) < name(items[b]); });
    return order;
  }

  template <typename T, typename Name>
  static const T* repeated(const std::vector<T>& items, const std::vector<std::uint32_t>& order, Name name) {
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (name(items[order[i - 1]]) == name(items[order[i]])) return &items[std::max(order[i - 1], order[i])];
    }
    return nullptr;
  }

  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t entry_count_ = 0;
  File file_;
};

Result<File> parse(std::span<const std::byte> bytes) {
  return Parser(bytes).run();
}

const Value* File::find(std::string_view key) const {
  const auto at =
      std::lower_bound(by_key_.begin(), by_key_.end(), key,
                       [this](std::uint32_t index, std::string_view wanted) { return metadata_[index].key < wanted; });
  return at != by_key_.end() && metadata_[*at].key == key ? &metadata_[*at].value : nullptr;
}

const Tensor* File::find_tensor(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](std::uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

}  // namespace kazeia::gguf
