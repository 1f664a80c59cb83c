// libFuzzer target of the GGUF reader and of everything that runs on what it accepts: no input may crash,
// read outside itself, overflow, or take more than linear time.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gguf/inspection.h"
#include "gguf/loadable.h"
#include "gguf/reader.h"

namespace {

using namespace kazeia::gguf;

volatile std::uint64_t sink;  // keeps the reads

void touch(const Value& value) {
  sink = value.as_unsigned().value_or(0) + (value.as_bool().value_or(false) ? 1 : 0) +
         static_cast<std::uint64_t>(value.as_real().has_value());
  if (const auto text = value.as_string()) sink = printable(*text).size();
  for (const std::uint64_t index : {std::uint64_t{0}, value.count / 2, value.count - 1}) {
    sink = value.unsigned_at(index).value_or(0) + (value.number_at(index).has_value() ? 1 : 0);
  }
  for (const std::string_view text : value.strings()) sink = text.empty() ? 0 : static_cast<unsigned char>(text.back());
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const kazeia::Result<File> file = parse(bytes);
  if (!file.ok()) {
    require(!file.error().message().empty());
    return 0;
  }
  for (const Entry& entry : file->metadata()) {
    require(file->find(entry.key) == &entry.value);
    touch(entry.value);
  }
  for (const Tensor& tensor : file->tensors()) {
    require(file->find_tensor(tensor.name) == &tensor);
    const auto content = file->data(tensor);
    require(content.size() == tensor.bytes);
    sink = static_cast<std::uint64_t>(content.front()) + static_cast<std::uint64_t>(content.back());
  }
  const std::span<const File> parts(&*file, 1);
  const Inspection facts = inspect(parts);
  require(facts.tensors == file->tensors().size());
  const kazeia::Status loadable = check_loadable(parts);
  require(loadable.ok() || !loadable.error().sentence().empty());
  return 0;
}
