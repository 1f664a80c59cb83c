// For the tests of this room: mini models converted by ggml to any type, and prepared as the program does it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/quantise.h"
#include "ggml.h"
#include "gguf/preparation.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace kazeia::mini {

inline constexpr gguf::TypeId kQ5_K{13};

inline Status prepare(const std::string& from, const std::string& to, const QuantiseOptions& options = {}) {
  KAZEIA_ASSIGN(const gguf::ModelFile source, gguf::open_gguf(from));
  KAZEIA_ASSIGN(const gguf::Preparation plan, gguf::plan_preparation(source.parts(), {}));
  const gguf::Header header = gguf::prepared_header(source.parts(), plan, {"kazeia", "upstream", "source", 1});
  KAZEIA_ASSIGN(gguf::Writer writer, gguf::Writer::create(to, header));
  KAZEIA_TRY(quantise(source, plan, writer, options));
  return writer.commit();
}

// The data of a tensor in another type: all of it at once, row by row, unlike the code under test.
inline std::string quantised_whole(const gguf::File& file, const gguf::Tensor& tensor, gguf::TypeId type) {
  const auto data = file.data(tensor);
  std::vector<float> values(tensor.elements);
  const auto elements = static_cast<std::int64_t>(tensor.elements);
  if (tensor.type->id == gguf::TypeId::kF32) {
    std::copy_n(reinterpret_cast<const float*>(data.data()), tensor.elements, values.data());
  } else {
    ggml_get_type_traits(static_cast<ggml_type>(tensor.type->id))->to_float(data.data(), values.data(), elements);
  }
  std::string out(*gguf::tensor_bytes(gguf::tensor_type(type), tensor.elements), '\0');
  const auto columns = static_cast<std::int64_t>(tensor.dims[0]);
  ggml_quantize_chunk(static_cast<ggml_type>(type), values.data(), out.data(), 0, elements / columns, columns, nullptr);
  return out;
}

// A copy of a model with all its matrices and tables in `type`.
inline Status convert(const std::string& from, const std::string& to, gguf::TypeId type) {
  KAZEIA_ASSIGN(const gguf::ModelFile source, gguf::open_gguf(from));
  const gguf::File& file = source.metadata();
  gguf::Header header;
  for (const gguf::Entry& entry : file.metadata()) header.add_value(entry.key, entry.value);
  const auto wanted = [type](const gguf::Tensor& tensor) {
    const gguf::TensorRole role = gguf::tensor_role(tensor);
    const bool large = role == gguf::TensorRole::kMatrix || role == gguf::TensorRole::kEmbedding;
    return large ? type : tensor.type->id;
  };
  for (const gguf::Tensor& tensor : file.tensors()) {
    header.add_tensor(tensor.name, wanted(tensor), std::span(tensor.dims).first(tensor.dimension_count));
  }
  KAZEIA_ASSIGN(gguf::Writer writer, gguf::Writer::create(to, header));
  for (const gguf::Tensor& tensor : file.tensors()) {
    const std::string data = quantised_whole(file, tensor, wanted(tensor));
    KAZEIA_TRY(writer.write(std::as_bytes(std::span<const char>(data.data(), data.size()))));
  }
  return writer.commit();
}

}  // namespace kazeia::mini
