// A model in several files: the first part holds the metadata, each part its share of the tensors.

#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "gguf/reader.h"

namespace kazeia::gguf {
namespace {

// "<prefix>-00002-of-00005.gguf"
struct PartName {
  std::string prefix;
  std::uint64_t number = 0;  // from 1
  std::uint64_t count = 0;
};

std::string part_path(const std::string& prefix, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::optional<PartName> part_name(const std::string& path) {
  constexpr std::string_view kShape = "-00000-of-00000.gguf";
  if (path.size() <= kShape.size()) return {};
  PartName name;
  name.prefix = path.substr(0, path.size() - kShape.size());
  const char* digits = path.data() + name.prefix.size() + 1;
  std::from_chars(digits, digits + 5, name.number);
  std::from_chars(digits + 9, digits + 14, name.count);
  // Composing the name again is the whole check of its form.
  if (part_path(name.prefix, name.number, name.count) != path) return {};
  return name;
}

// The value of a split counter, which upstream reads as exactly this type and asserts on any other.
Result<std::uint64_t> counter(const File& file, std::string_view key, ValueType type) {
  const Value* value = file.find(key);
  if (value == nullptr) return Error(ErrorCode::kFile, fmt::format("the metadata key '{}' is missing", key));
  const auto number = value->type == type ? value->as_unsigned() : std::nullopt;
  if (!number) {
    return Error(ErrorCode::kFile, fmt::format("invalid GGUF file at byte {}: '{}' must be a non-negative {}",
                                               value->offset, key, value_type_name(type)));
  }
  return *number;
}

Result<std::uint64_t> part_count(const File& file) {
  if (file.find("split.count") == nullptr) return std::uint64_t{1};
  return counter(file, "split.count", ValueType::kU16);
}

Status check_part(const File& file, std::uint64_t number, std::uint64_t count) {
  KAZEIA_ASSIGN(const std::uint64_t own_number, counter(file, "split.no", ValueType::kU16));
  KAZEIA_ASSIGN(const std::uint64_t own_count, counter(file, "split.count", ValueType::kU16));
  if (own_number + 1 != number || own_count != count) {
    return Error(ErrorCode::kFile,
                 fmt::format("the file says it is part {} of {}, but its name says part {} of {}", own_number + 1,
                             own_count, number, count),
                 "Give every part the name it was published with");
  }
  return {};
}

Status check_tensor_total(std::span<const File> parts) {
  KAZEIA_ASSIGN(const std::uint64_t expected, counter(parts.front(), "split.tensors.count", ValueType::kI32));
  std::uint64_t found = 0;
  std::unordered_set<std::string_view> names;
  for (const File& part : parts) {
    found += part.tensors().size();
    for (const Tensor& tensor : part.tensors()) {
      if (!names.insert(tensor.name).second) {
        return Error(ErrorCode::kFile, fmt::format("tensor '{}' is in two parts of the model", printable(tensor.name)),
                     "Get all parts from the same source");
      }
    }
  }
  if (found != expected) {
    return Error(ErrorCode::kFile,
                 fmt::format("the parts hold {} tensors together, but {} are announced", found, expected),
                 "Get all parts from the same source");
  }
  return {};
}

}  // namespace

std::uint64_t ModelFile::total_bytes() const {
  std::uint64_t sum = 0;
  for (const File& part : parts_) sum += part.size();
  return sum;
}

std::uint64_t ModelFile::tensor_bytes() const {
  std::uint64_t sum = 0;
  for (const File& part : parts_) {
    for (const Tensor& tensor : part.tensors()) sum += tensor.bytes;  // each is smaller than its file
  }
  return sum;
}

Result<ModelFile> open_gguf(const std::string& path) {
  ModelFile model;
  const auto add_part = [&model](const std::string& part) -> Status {
    KAZEIA_ASSIGN(MappedFile mapping, MappedFile::open(part));
    Result<File> file = parse(mapping.bytes());
    if (!file.ok()) return file.error().within(part);
    model.mappings_.push_back(std::move(mapping));
    model.parts_.push_back(*std::move(file));
    model.paths_.push_back(part);
    return {};
  };
  KAZEIA_TRY(add_part(path));

  const Result<std::uint64_t> announced = part_count(model.metadata());
  if (!announced.ok()) return announced.error().within(path);
  const std::uint64_t count = *announced;
  if (count <= 1) return model;

  const std::optional<PartName> name = part_name(path);
  if (!name || name->count != count || name->number == 0 || name->number > count) {
    return Error(ErrorCode::kFile, fmt::format("'{}' is one of {} parts, but is not named like one", path, count),
                 "Name the parts '...-00001-of-0000N.gguf' again, as they were published");
  }
  if (name->number != 1) {
    return Error(ErrorCode::kFile, fmt::format("'{}' is part {} of {} of a model", path, name->number, count),
                 fmt::format("Open '{}' instead", part_path(name->prefix, 1, count)));
  }
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::string part = part_path(name->prefix, number, count);
    if (number > 1) {
      std::error_code ignored;
      if (!std::filesystem::exists(part, ignored)) {
        return Error(ErrorCode::kFile, fmt::format("part {} of {} is missing: no file at '{}'", number, count, part),
                     "Put all parts of the model into one folder");
      }
      KAZEIA_TRY(add_part(part));
    }
    const Status matches = check_part(model.parts_.back(), number, count);
    if (!matches.ok()) return matches.error().within(part);
  }
  const Status complete = check_tensor_total(model.parts_);
  if (!complete.ok()) return complete.error().within(path);
  return model;
}

}  // namespace kazeia::gguf
