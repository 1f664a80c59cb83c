#include "gguf/preparation.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>

namespace kazeia::gguf {
namespace {

constexpr std::string_view kProvenancePrefix = "kazeia.prepared.";

// Tables of one row per token.
constexpr std::array<std::string_view, 3> kEmbeddings = {"token_embd.weight", "output.weight",
                                                         "per_layer_token_embd.weight"};
constexpr std::array<std::string_view, 2> kNextTokenEmbeddings = {".nextn.embed_tokens.weight",
                                                                  ".nextn.shared_head_head.weight"};

// Parts of the names of matrices that upstream's own quantiser leaves alone (llama-quant.cpp,
// tensor_allows_quantization): operands of convolutions and element-wise operators, and small ones that decide much.
constexpr std::array<std::string_view, 27> kNeverQuantised = {"_norm.weight",
                                                              "ffn_gate_inp.weight",
                                                              "ffn_gate_tid2eid",
                                                              "altup",
                                                              "laurel",
                                                              "per_layer_model_proj",
                                                              "ssm_conv1d",
                                                              "shortconv.conv.weight",
                                                              "indexer.k_proj.weight",
                                                              "indexer.q_proj.weight",
                                                              "attn_rel_b.weight",
                                                              "position_embd",
                                                              "token_types.weight",
                                                              "time_mix_first.weight",
                                                              "time_mix_w0.weight",
                                                              "time_mix_w1.weight",
                                                              "time_mix_w2.weight",
                                                              "time_mix_v0.weight",
                                                              "time_mix_v1.weight",
                                                              "time_mix_v2.weight",
                                                              "time_mix_a0.weight",
                                                              "time_mix_a1.weight",
                                                              "time_mix_a2.weight",
                                                              "time_mix_g1.weight",
                                                              "time_mix_g2.weight",
                                                              "time_mix_decay_w",
                                                              "time_mix_lerp_fused.weight"};

// Of those, the ones that are an operand of a matrix product all the same.
constexpr std::array<std::string_view, 4> kSmallButMultiplied = {"ffn_gate_inp.weight", "per_layer_model_proj",
                                                                 "indexer.k_proj.weight", "indexer.q_proj.weight"};

bool contains_one_of(std::string_view name, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [name](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

bool is_embedding(std::string_view name) {
  return std::find(kEmbeddings.begin(), kEmbeddings.end(), name) != kEmbeddings.end() ||
         std::any_of(kNextTokenEmbeddings.begin(), kNextTokenEmbeddings.end(),
                     [name](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_integer(TypeId type) {
  return type >= TypeId::kI8 && type <= TypeId::kI64;
}

// The NPU's matrix product takes these: tiles, and plain floats.
bool npu_takes(TypeId type) {
  switch (type) {
    case TypeId::kQ4_0:
    case TypeId::kQ4_1:
    case TypeId::kQ8_0:
    case TypeId::kQ4_K:
    case TypeId::kQ6_K:
    case TypeId::kIQ4_NL:
    case TypeId::kMXFP4:
    case TypeId::kF16:
    case TypeId::kF32:
      return true;
    default:
      return false;
  }
}

bool is_quantised(TypeId type) {
  return tensor_type(type).block_elements > 1;
}

// Types that ggml writes (as operands of its own products) but never reads back.
bool cannot_be_read_back(TypeId type) {
  return type == TypeId::kQ8_1 || type == TypeId::kQ8_K || type == TypeId::kF64;
}

bool fits(const Tensor& tensor, TypeId type) {
  return tensor.dims[0] % tensor_type(type).block_elements == 0;
}

// The type that is wanted, or the nearest one whose blocks divide the columns, with a note.
TypeId fitting(const Tensor& tensor, TypeId wanted, std::string& note) {
  if (fits(tensor, wanted)) return wanted;
  const TypeId instead = wanted == TypeId::kQ6_K && fits(tensor, TypeId::kQ8_0) ? TypeId::kQ8_0 : TypeId::kF16;
  note = fmt::format("{} instead of {}: {} columns are not a multiple of {}", tensor_type(instead).name,
                     tensor_type(wanted).name, tensor.dims[0], tensor_type(wanted).block_elements);
  return instead;
}

// Vectors and small matrices stay, except where the NPU refuses their type: then F32, which holds all of them exactly.
TypeId widened(const Tensor& tensor, std::string& note) {
  const TypeId type = tensor.type->id;
  const bool vector = tensor_role(tensor) == TensorRole::kVector;
  // A vector is an operand of element-wise operators, whose operands must have one type: F32.
  const bool taken = is_integer(type) || (vector ? type == TypeId::kF32 : npu_takes(type));
  if (taken) return type;
  note = fmt::format("F32 holds it exactly; the NPU refuses {} here", tensor.type->name);
  return TypeId::kF32;
}

PreparedTensor prepare(const Tensor& tensor, const PreparationOptions& options) {
  PreparedTensor prepared;
  prepared.source = &tensor;
  prepared.role = tensor_role(tensor);
  prepared.type = tensor.type->id;
  const bool quantise = prepared.role == TensorRole::kMatrix || prepared.role == TensorRole::kEmbedding;
  if (options.keep && options.keep(tensor.name)) {
    prepared.note = "kept as asked";
  } else if (!quantise) {
    prepared.type = widened(tensor, prepared.note);
  } else if (options.only_refused && (tensor.dims[2] > 1 || npu_refusal(tensor, tensor.type->id).empty())) {
    prepared.note = "no other type would bring it to the NPU";
  } else {
    const TypeId wanted = prepared.role == TensorRole::kEmbedding ? options.embedding : options.weights;
    prepared.type = fitting(tensor, wanted, prepared.note);
    prepared.fell_back = prepared.type != wanted;
  }
  prepared.bytes = *tensor_bytes(tensor_type(prepared.type), tensor.elements);
  return prepared;
}

// Upstream's llama_ftype of the type that most bytes of the matrices have; it is shown, nothing depends on it.
std::optional<std::uint32_t> file_type(const Preparation& preparation) {
  std::map<TypeId, std::uint64_t> bytes;
  for (const PreparedTensor& tensor : preparation.tensors) {
    if (tensor.role == TensorRole::kMatrix) bytes[tensor.type] += tensor.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == bytes.end()) return std::nullopt;
  switch (most->first) {
    case TypeId::kF32:
      return 0;
    case TypeId::kF16:
      return 1;
    case TypeId::kQ4_0:
      return 2;
    case TypeId::kQ4_1:
      return 3;
    case TypeId::kQ8_0:
      return 7;
    case TypeId::kQ4_K:
      return 15;
    case TypeId::kQ6_K:
      return 18;
    case TypeId::kIQ4_NL:
      return 25;
    default:
      return std::nullopt;
  }
}

}  // namespace

TensorRole tensor_role(const Tensor& tensor) {
  const bool one_row = tensor.dims[1] == 1 && tensor.dims[2] == 1 && tensor.dims[3] == 1;
  if (one_row || is_integer(tensor.type->id)) return TensorRole::kVector;
  if (is_embedding(tensor.name)) return TensorRole::kEmbedding;
  if (!tensor.name.ends_with("weight") || contains_one_of(tensor.name, kNeverQuantised)) return TensorRole::kSmall;
  return TensorRole::kMatrix;
}

std::string npu_refusal(const Tensor& tensor, TypeId type) {
  const TensorRole role = tensor_role(tensor);
  const bool multiplied =
      role == TensorRole::kMatrix || (role == TensorRole::kSmall && contains_one_of(tensor.name, kSmallButMultiplied));
  if (!multiplied) return {};
  if (tensor.dims[2] > 1) return "experts stay with the CPU";
  if (npu_takes(type)) return {};
  return fmt::format("{} has no tile layout", tensor_type(type).name);
}

std::size_t Preparation::changed() const {
  return static_cast<std::size_t>(
      std::count_if(tensors.begin(), tensors.end(), [](const PreparedTensor& tensor) { return tensor.changes(); }));
}

bool Preparation::requantises() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const PreparedTensor& tensor) {
    return tensor.changes() && is_quantised(tensor.source->type->id) && is_quantised(tensor.type);
  });
}

Result<Preparation> plan_preparation(std::span<const File> parts, const PreparationOptions& options) {
  Preparation preparation;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (const Tensor& tensor : parts[part].tensors()) {
      PreparedTensor prepared = prepare(tensor, options);
      prepared.part = part;
      if (prepared.changes() && cannot_be_read_back(tensor.type->id)) {
        return Error(ErrorCode::kUnsupported,
                     fmt::format("tensor '{}' has the type {}, which cannot be converted", printable(tensor.name),
                                 tensor.type->name),
                     "Prepare another file of this model");
      }
      preparation.bytes_before += tensor.bytes;
      preparation.bytes_after += prepared.bytes;
      preparation.tensors.push_back(std::move(prepared));
    }
  }
  return preparation;
}

Header prepared_header(std::span<const File> parts, const Preparation& preparation, const Provenance& provenance) {
  Header header;
  const std::optional<std::uint32_t> type = file_type(preparation);
  bool has_type = false;
  bool has_version = false;
  for (const Entry& entry : parts.front().metadata()) {
    if (entry.key.starts_with("split.") || entry.key.starts_with(kProvenancePrefix)) continue;
    if (entry.key == "general.alignment") {
      header.add_u32(entry.key, kDefaultAlignment);  // what the writer pads to
    } else if (entry.key == "general.quantization_version") {
      header.add_u32(entry.key, kQuantizationVersion);
      has_version = true;
    } else if (entry.key == "general.file_type" && type) {
      header.add_u32(entry.key, *type);
      has_type = true;
    } else {
      header.add_value(entry.key, entry.value);
    }
  }
  if (!has_version) header.add_u32("general.quantization_version", kQuantizationVersion);
  if (!has_type && type) header.add_u32("general.file_type", *type);
  const auto key = [](std::string_view name) { return std::string(kProvenancePrefix) + std::string(name); };
  header.add_string(key("engine"), provenance.engine);
  header.add_string(key("upstream"), provenance.upstream);
  header.add_string(key("source"), provenance.source_name);
  header.add_u64(key("source_bytes"), provenance.source_bytes);
  for (const PreparedTensor& tensor : preparation.tensors) {
    header.add_tensor(tensor.source->name, tensor.type,
                      std::span(tensor.source->dims).first(tensor.source->dimension_count));
  }
  return header;
}

}  // namespace kazeia::gguf
