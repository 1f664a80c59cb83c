#include "gguf/loadable.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace kazeia::gguf {
namespace {

constexpr std::string_view kElsewhere = "Get the model from another source, or convert it again";

Error contradiction(const std::string& reason) {
  return Error(ErrorCode::kFile, fmt::format("unusable model: {}", reason), std::string(kElsewhere));
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// The hyperparameters of one architecture, read with the types that upstream insists on.
class Hyperparameters {
 public:
  Hyperparameters(const File& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  Status check() {
    if (file_.find(key("block_count")) == nullptr && !is_qwen()) return {};  // upstream's refusal is clean
    KAZEIA_TRY(check_sizes());
    KAZEIA_TRY(check_experts());
    KAZEIA_TRY(check_heads());
    KAZEIA_TRY(check_rope());
    KAZEIA_TRY(check_reals());
    return architecture_ == "qwen35" || architecture_ == "qwen35moe" ? check_recurrent_layers() : Status{};
  }

  // Layers that keep a recurrent state; filled for qwen35 only.
  const std::vector<bool>& recurrent() const { return recurrent_; }

 private:
  bool is_qwen() const { return architecture_ == "qwen3" || architecture_ == "qwen35"; }
  std::string key(std::string_view name) const { return fmt::format("{}.{}", printable(architecture_), name); }

  Result<std::optional<std::uint64_t>> number(std::string_view name) const {
    const Value* value = file_.find(key(name));
    if (value == nullptr) return std::optional<std::uint64_t>{};
    if (value->type != ValueType::kU32) {
      return contradiction(fmt::format("metadata '{}' at byte {} is {}, it must be u32", key(name), value->offset,
                                       value_type_name(value->type)));
    }
    return value->as_unsigned();
  }

  Result<std::uint64_t> number_in(std::string_view name, std::uint64_t low, std::uint64_t high,
                                  std::optional<std::uint64_t> otherwise = {}) const {
    KAZEIA_ASSIGN(std::optional<std::uint64_t> value, number(name));
    if (!value) value = otherwise;
    if (!value) return contradiction(fmt::format("metadata '{}' is missing", key(name)));
    if (*value < low || *value > high) {
      return Error(
          high == kMaxLayers || high == kMaxExperts ? ErrorCode::kUnsupported : ErrorCode::kFile,
          fmt::format("unusable model: metadata '{}' is {}, it must be {} to {}", key(name), *value, low, high),
          std::string(kElsewhere));
    }
    return *value;
  }

  // One number for every layer, or an array of them.
  Result<std::optional<std::vector<std::uint64_t>>> per_layer(std::string_view name) const {
    using Layers = std::optional<std::vector<std::uint64_t>>;
    const Value* value = file_.find(key(name));
    if (value == nullptr) return Layers{};
    if (!value->is_array()) {
      KAZEIA_ASSIGN(const auto single, number(name));
      return Layers(std::vector<std::uint64_t>(layers_, *single));
    }
    if (value->count != layers_ || !(value->element == ValueType::kU32 || value->element == ValueType::kI32 ||
                                     value->element == ValueType::kBool)) {
      return contradiction(
          fmt::format("metadata '{}' at byte {} has {} values of type {}, it must have one whole number "
                      "for each of the {} layers",
                      key(name), value->offset, value->count, value_type_name(value->element), layers_));
    }
    std::vector<std::uint64_t> list;
    for (std::uint64_t i = 0; i < layers_; ++i) {
      const auto one = value->unsigned_at(i);
      if (!one) return contradiction(fmt::format("metadata '{}' is negative for layer {}", key(name), i));
      list.push_back(*one);
    }
    return Layers(std::move(list));
  }

  Status check_sizes() {
    KAZEIA_ASSIGN(layers_, number_in("block_count", 1, kMaxLayers));
    KAZEIA_ASSIGN(next_token_layers_, number_in("nextn_predict_layers", 0, layers_, 0));
    KAZEIA_TRY(number_in("context_length", 1, INT32_MAX));
    KAZEIA_ASSIGN(embedding_, number_in("embedding_length", 1, 1u << 24));
    if (is_qwen() && next_token_layers_ == layers_) {
      return contradiction(fmt::format("all {} layers are next-token prediction layers", layers_));
    }
    return {};
  }

  Status check_experts() const {
    KAZEIA_ASSIGN(const std::uint64_t experts, number_in("expert_count", 0, kMaxExperts, 0));
    KAZEIA_ASSIGN(const auto used, per_layer("expert_used_count"));
    const std::uint64_t most_used = used ? *std::max_element(used->begin(), used->end()) : 0;
    KAZEIA_ASSIGN(const std::uint64_t groups, number_in("expert_group_count", 0, UINT32_MAX, 0));
    KAZEIA_ASSIGN(const std::uint64_t groups_used, number_in("expert_group_used_count", 0, UINT32_MAX, 0));
    // Upstream clears a single expert for the hunyuan models before it looks.
    const bool exempt = architecture_.starts_with("hunyuan") && experts <= 1;
    if (!exempt && (most_used > experts || (experts > 0 && most_used == 0))) {
      return contradiction(fmt::format("{} of {} experts are used", most_used, experts));
    }
    const bool no_groups = groups == 0;
    const bool good_groups =
        groups < experts &&
        (groups == 1 || (experts % std::max<std::uint64_t>(groups, 1) == 0 && groups_used > 0 && groups_used < groups));
    if (!no_groups && !good_groups) {
      return contradiction(
          fmt::format("{} of {} expert groups are used with {} experts", groups_used, groups, experts));
    }
    return {};
  }

  Status check_heads() {
    KAZEIA_ASSIGN(const auto heads, per_layer("attention.head_count"));
    if (!heads)
      return is_qwen() ? Status(contradiction(fmt::format("metadata '{}' is missing", key("attention.head_count"))))
                       : Status{};
    KAZEIA_ASSIGN(const auto given, per_layer("attention.head_count_kv"));
    const std::vector<std::uint64_t>& kv_heads = given ? *given : *heads;
    for (std::uint64_t i = 0; i < layers_; ++i) {
      const std::uint64_t q = (*heads)[i];
      const std::uint64_t kv = kv_heads[i];
      const bool both = q > 0 && kv > 0;
      if (q > 65536 || kv > 65536 || (both && q % kv != 0) || (is_qwen() && !both)) {
        return contradiction(fmt::format("layer {} has {} query heads over {} key-value heads", i, q, kv));
      }
    }
    const std::uint64_t first = heads->front();
    if (first == 0) return {};
    KAZEIA_ASSIGN(key_length_, number_in("attention.key_length", 1, 65536, embedding_ / first));
    KAZEIA_ASSIGN(const std::uint64_t value_length, number_in("attention.value_length", 1, 65536, embedding_ / first));
    // Their graphs assert it.
    const bool same_lengths =
        is_one_of(architecture_, {"qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen2", "qwen2moe", "llama",
                                  "mistral3", "phi3", "olmo2", "smollm3"});
    if (same_lengths && key_length_ != value_length) {
      return contradiction(fmt::format("keys have {} elements per head and values {}, '{}' needs them equal",
                                       key_length_, value_length, printable(architecture_)));
    }
    return {};
  }

  Status check_rope() const {
    if (const Value* scaling = file_.find(key("rope.scaling.type"))) {
      const auto name = scaling->as_string();
      if (!name || !is_one_of(*name, {"none", "linear", "yarn", "longrope"})) {
        return contradiction(fmt::format("metadata '{}' at byte {} is not one of none, linear, yarn, longrope",
                                         key("rope.scaling.type"), scaling->offset));
      }
    }
    if (key_length_ == 0) return {};
    KAZEIA_ASSIGN(const std::uint64_t rotated, number_in("rope.dimension_count", 0, 65536, key_length_));
    const bool whole_head = is_one_of(architecture_, {"qwen3", "qwen3moe", "qwen2", "qwen2moe", "olmo2", "smollm3"});
    const bool some = is_one_of(architecture_, {"qwen35", "qwen35moe"});  // their graph never ends with none
    if (rotated > key_length_ || rotated % 2 != 0 || (whole_head && rotated != key_length_) || (some && rotated == 0)) {
      return contradiction(fmt::format("{} of the {} elements of a head are rotated", rotated, key_length_));
    }
    return {};
  }

  Status check_reals() const {
    for (const std::string_view name : {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon",
                                        "rope.freq_base", "rope.scaling.factor", "rope.scaling.attn_factor"}) {
      const Value* value = file_.find(key(name));
      if (value == nullptr) continue;
      const auto real = value->type == ValueType::kF32 ? value->as_real() : std::nullopt;
      if (!real || !std::isfinite(*real) || *real < 0 || (name == "rope.freq_base" && *real == 0)) {
        return contradiction(
            fmt::format("metadata '{}' at byte {} must be a finite positive f32", key(name), value->offset));
      }
    }
    return {};
  }

  // Gated delta net: upstream divides by the head count and by the interval, and asserts the rest.
  Status check_recurrent_layers() {
    KAZEIA_ASSIGN(const std::uint64_t inner, number_in("ssm.inner_size", 1, 1u << 24));
    KAZEIA_ASSIGN(const std::uint64_t state, number_in("ssm.state_size", 1, 1u << 16));
    KAZEIA_ASSIGN(const std::uint64_t value_heads, number_in("ssm.time_step_rank", 1, 1u << 16));
    KAZEIA_ASSIGN(const std::uint64_t key_heads, number_in("ssm.group_count", 1, 1u << 16));
    KAZEIA_TRY(number_in("ssm.conv_kernel", 2, 64));
    if (inner != state * value_heads || value_heads % key_heads != 0) {
      return contradiction(fmt::format("{} value heads of {} over {} key heads do not make an inner size of {}",
                                       value_heads, state, key_heads, inner));
    }
    const Value* sections = file_.find(key("rope.dimension_sections"));
    double sum = 0;
    for (std::uint64_t i = 0; sections != nullptr && i < std::min<std::uint64_t>(sections->count, 4); ++i) {
      const auto section = sections->unsigned_at(i);
      sum += section ? static_cast<double>(*section) : NAN;
    }
    if (sections == nullptr || sections->count != 4 || !(sum > 0 && sum <= 65536)) {
      return contradiction(fmt::format("metadata '{}' must be four whole numbers that are not all zero",
                                       key("rope.dimension_sections")));
    }
    KAZEIA_ASSIGN(const auto listed, per_layer("attention.recurrent_layers"));
    KAZEIA_ASSIGN(const std::uint64_t interval, number_in("full_attention_interval", 1, UINT32_MAX, 4));
    for (std::uint64_t i = 0; i < layers_; ++i) {
      recurrent_.push_back(listed ? (*listed)[i] != 0 : i < layers_ - next_token_layers_ && (i + 1) % interval != 0);
    }
    return {};
  }

  const File& file_;
  std::string_view architecture_;
  std::uint64_t layers_ = 0;
  std::uint64_t next_token_layers_ = 0;
  std::uint64_t embedding_ = 0;
  std::uint64_t key_length_ = 0;  // 0: no attention in the first layer
  std::vector<bool> recurrent_;
};

// Vectors are operands of element-wise CPU operators, which abort on a second operand that is not F32.
bool must_be_f32(const Tensor& tensor) {
  const std::string_view name = tensor.name;
  if (name.ends_with("ssm_conv1d.weight") || name.ends_with(".ssm_a")) return true;
  return tensor.dims[1] == 1 && tensor.dimension_count == 1 &&
         (name.ends_with("norm.weight") || name.ends_with("norm.bias") || name.ends_with(".bias"));
}

// No CPU matrix product exists for these; upstream finds out by calling a null pointer.
bool cannot_multiply(const TensorType& type) {
  return type.id == TypeId::kQ8_1 || type.id == TypeId::kQ8_K || (type.id >= TypeId::kI8 && type.id <= TypeId::kF64);
}

bool is_matrix_of_a_product(std::string_view name) {
  if (!name.ends_with(".weight")) return false;
  for (const std::string_view part : {"token_embd.", "output.", "attn_", "ffn_up", "ffn_down", "ffn_gate", "ssm_out",
                                      "ssm_alpha", "ssm_beta", "ssm_in"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

Status check_tensors(const File& file) {
  std::uint64_t expected = file.data_offset();
  for (const Tensor& tensor : file.tensors()) {
    const std::string name = printable(tensor.name);
    if (tensor.offset != expected) {
      return contradiction(
          fmt::format("the data of tensor '{}' begin at byte {} instead of {}, directly behind the ones "
                      "before",
                      name, tensor.offset, expected));
    }
    expected += (tensor.bytes + file.alignment() - 1) / file.alignment() * file.alignment();
    if (must_be_f32(tensor) ? tensor.type->id != TypeId::kF32
                            : is_matrix_of_a_product(tensor.name) && cannot_multiply(*tensor.type)) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("tensor '{}' has the type {}, which cannot be computed with", name, tensor.type->name),
                   "Quantise the model again, for example to Q4_0");
    }
  }
  return {};
}

bool has_tensor(std::span<const File> parts, const std::string& name) {
  return std::any_of(parts.begin(), parts.end(), [&](const File& part) { return part.find_tensor(name) != nullptr; });
}

}  // namespace

Status check_loadable(std::span<const File> parts) {
  const File& metadata = parts.front();
  const Value* value = metadata.find("general.architecture");
  if (value == nullptr || !value->as_string()) {
    return contradiction("metadata 'general.architecture' is missing or not a string");
  }
  const std::string_view architecture = *value->as_string();
  if (architecture == "clip") {
    return Error(ErrorCode::kUnsupported, "the file is an image encoder, not a language model",
                 "Open the language model that it belongs to");
  }
  for (const Entry& entry : metadata.metadata()) {
    if (entry.value.is_array() && entry.value.element == ValueType::kArray) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("metadata '{}' is an array of arrays, which cannot be loaded", printable(entry.key)));
    }
  }
  Hyperparameters hyperparameters(metadata, architecture);
  KAZEIA_TRY(hyperparameters.check());
  KAZEIA_TRY(check_vocabulary(metadata));

  std::size_t tensors = 0;
  for (const File& part : parts) {
    KAZEIA_TRY(check_tensors(part));
    tensors += part.tensors().size();
  }
  if (tensors == 0) return contradiction("it contains no tensors");
  // Optional to upstream's loader, dereferenced by its graph.
  for (std::size_t i = 0; i < hyperparameters.recurrent().size(); ++i) {
    if (!hyperparameters.recurrent()[i]) continue;
    for (const std::string_view name : {"attn_qkv", "attn_gate"}) {
      const std::string tensor = fmt::format("blk.{}.{}.weight", i, name);
      if (!has_tensor(parts, tensor))
        return contradiction(fmt::format("tensor '{}' of a recurrent layer is missing", tensor));
    }
  }
  return {};
}

}  // namespace kazeia::gguf
