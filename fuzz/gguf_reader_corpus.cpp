// Writes the seeds of gguf_reader_fuzz: `gguf_reader_corpus OUT_FOLDER MODELS_FOLDER`.

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/files.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace {

using namespace kazeia;
using namespace kazeia::gguf;

bool save(const std::string& path, const std::string& bytes) {
  Result<AtomicFileWriter> file = AtomicFileWriter::create(path);
  if (!file.ok() || !file->write(bytes).ok() || !file->commit().ok()) {
    fmt::print(stderr, "cannot write {}\n", path);
    return false;
  }
  return true;
}

// The finished file with zeros as tensor data.
std::string with_data(const Header& header) {
  std::string bytes = header.serialise();
  bytes.resize(header.file_bytes());
  return bytes;
}

std::string every_value_type() {
  Header header;
  header.add_string("general.architecture", "llama");
  header.add_u16("split.no", 0);
  header.add_i32("split.tensors.count", 1);
  header.add_u64("any.u64", 1);
  header.add_f32("any.f32", 0.5f);
  header.add_bool("any.bool", true);
  header.add_u32("general.alignment", 32);
  header.add_f32s("any.f32s", std::array<float, 3>{1, 2, 3});
  header.add_i32s("any.i32s", std::array<std::int32_t, 3>{1, 2, 3});
  header.add_strings("any.strings", std::vector<std::string>{"", "a", "bc"});
  // An array of two arrays of two bytes, which the writer has no call for.
  const std::string nested{"\0\0\0\0\2\0\0\0\0\0\0\0ab\0\0\0\0\2\0\0\0\0\0\0\0cd", 28};
  header.add_value("any.nested", {ValueType::kArray, ValueType::kArray, 2, std::as_bytes(std::span(nested)), 0});
  header.add_tensor("a.weight", TypeId::kF32, {4});
  return with_data(header);
}

std::string every_tensor_type() {
  Header header;
  header.add_string("general.architecture", "llama");
  for (const TensorType& type : all_tensor_types()) {
    header.add_tensor(fmt::format("{}.weight", type.name), type.id, {type.block_elements, 2});
  }
  return with_data(header);
}

// A model's metadata with arrays cut to a few entries and tensors to one block a row: its structure in 5 kB.
Result<std::string> shrunk(const std::string& path) {
  KAZEIA_ASSIGN(const ModelFile model, open_gguf(path));
  constexpr std::uint64_t kKept = 16;
  Header header;
  for (const Entry& entry : model.metadata().metadata()) {
    const Value& value = entry.value;
    if (value.is_array() && value.element == ValueType::kString) {
      const std::vector<std::string_view> all = value.strings();
      header.add_strings(
          entry.key, std::vector<std::string>(all.begin(),
                                              all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kKept))));
    } else if (value.is_array() && value.count > kKept) {
      Value first = value;
      first.count = kKept;
      first.data = value.data.first(kKept * value_type_bytes(value.element));
      header.add_value(entry.key, first);
    } else {
      header.add_value(entry.key, value);
    }
  }
  for (const Tensor& tensor : model.metadata().tensors()) {
    if (tensor.type->block_elements > 32) continue;
    std::vector<std::uint64_t> dims(tensor.dimension_count, 1);
    dims[0] = tensor.type->block_elements;
    header.add_tensor(tensor.name, tensor.type->id, dims);
  }
  return with_data(header);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  std::string version_2 = every_value_type();
  version_2[4] = 2;
  bool ok = save(folder + "/values.gguf", every_value_type()) && save(folder + "/values_v2.gguf", version_2) &&
            save(folder + "/tensors.gguf", every_tensor_type()) && save(folder + "/empty.gguf", Header().serialise());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2], error)) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<std::string> seed = shrunk(entry.path().string());
    if (!seed.ok()) fmt::print(stderr, "{}\n", seed.error().sentence());
    ok = ok && seed.ok() && save(folder + "/" + entry.path().filename().string(), *seed);
  }
  return ok ? 0 : 1;
}
