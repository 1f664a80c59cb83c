#include "gguf/inspection.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gguf/loadable.h"

namespace kazeia::gguf {
namespace {

std::string text_of(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  return value == nullptr ? std::string() : std::string(value->as_string().value_or(std::string_view()));
}

std::optional<std::uint64_t> number_of(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  return value == nullptr ? std::nullopt : value->as_unsigned();
}

// A per-layer value as a list: empty, one entry if all are equal, or one per layer.
std::vector<std::uint64_t> list_of(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  std::vector<std::uint64_t> list;
  if (value == nullptr || value->count > kMaxLayers) return list;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    if (const auto one = value->unsigned_at(i)) list.push_back(*one);
  }
  const bool uniform = std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
  if (uniform && !list.empty()) return {list.front()};
  return list;
}

// 7 and "attn_k.weight" of "blk.7.attn_k.weight".
std::optional<std::pair<std::uint64_t, std::string_view>> layer_tensor(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  std::uint64_t layer = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, layer);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != '.') return {};
  return std::pair(layer, std::string_view(parsed.ptr + 1, static_cast<std::size_t>(end - parsed.ptr - 1)));
}

// The tensors tell the truth about a layer whatever the architecture's metadata call it.
std::vector<LayerKind> layer_map(std::span<const File> parts, std::uint64_t layers, std::uint64_t next_token_layers) {
  std::vector<bool> attends(layers);
  std::vector<bool> recurs(layers);
  std::vector<bool> fused(layers);  // attn_qkv: attention, unless the layer is recurrent (qwen35 uses it for both)
  for (const File& part : parts) {
    for (const Tensor& tensor : part.tensors()) {
      const auto found = layer_tensor(tensor.name);
      if (!found || found->first >= layers) continue;
      const auto [layer, name] = *found;
      if (name.starts_with("attn_k.") || name.starts_with("attn_kv")) attends[layer] = true;
      if (name.starts_with("attn_qkv.")) fused[layer] = true;
      if (name.starts_with("ssm_") || name.starts_with("time_mix_") || name.starts_with("shortconv."))
        recurs[layer] = true;
    }
  }
  std::vector<LayerKind> map(layers);
  for (std::uint64_t i = 0; i < layers; ++i) {
    map[i] = i + next_token_layers >= layers ? LayerKind::kNextToken
             : recurs[i]                     ? (attends[i] ? LayerKind::kBoth : LayerKind::kRecurrent)
             : attends[i] || fused[i]        ? LayerKind::kAttention
                                             : LayerKind::kNeither;
  }
  return map;
}

void add_tensors(std::span<const File> parts, Inspection& facts) {
  bool output = false;
  bool embedding = false;
  for (const File& part : parts) {
    facts.file_bytes += part.size();
    for (const Tensor& tensor : part.tensors()) {
      ++facts.tensors;
      facts.tensor_bytes += tensor.bytes;
      facts.parameters += tensor.elements;
      output |= tensor.name == "output.weight";
      embedding |= tensor.name == "token_embd.weight";
      auto share = std::find_if(facts.types.begin(), facts.types.end(),
                                [&](const TypeShare& one) { return one.type == tensor.type->name; });
      if (share == facts.types.end()) share = facts.types.insert(share, TypeShare{tensor.type->name});
      ++share->tensors;
      share->elements += tensor.elements;
      share->bytes += tensor.bytes;
    }
  }
  facts.tied_embeddings = embedding && !output;
  std::stable_sort(facts.types.begin(), facts.types.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
}

void add_vocabulary(const File& file, Inspection& facts) {
  facts.tokenizer = text_of(file, "tokenizer.ggml.model");
  facts.pre_tokenizer = text_of(file, "tokenizer.ggml.pre");
  std::vector<std::string_view> tokens;
  if (const Value* list = file.find("tokenizer.ggml.tokens")) tokens = list->strings();
  facts.vocabulary = tokens.size();
  if (const Value* list = file.find("tokenizer.ggml.merges"); list != nullptr && list->is_array()) {
    facts.merges = list->count;
  }
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  constexpr std::string_view kSuffix = "_token_id";
  for (const Entry& entry : file.metadata()) {
    if (!entry.key.starts_with(kPrefix) || !entry.key.ends_with(kSuffix)) continue;
    if (entry.key.size() <= kPrefix.size() + kSuffix.size()) continue;
    const auto id = entry.value.as_unsigned();
    if (!id) continue;
    const std::string_view role = entry.key.substr(kPrefix.size(), entry.key.size() - kPrefix.size() - kSuffix.size());
    facts.special_tokens.push_back({std::string(role), *id, *id < tokens.size() ? std::string(tokens[*id]) : ""});
  }
  const std::string chat_template = text_of(file, "tokenizer.chat_template");
  facts.chat_template_bytes = chat_template.size();
  facts.template_has_thinking = chat_template.find("enable_thinking") != std::string::npos;
  facts.template_has_tools = chat_template.find("tools") != std::string::npos;
}

}  // namespace

std::string_view layer_kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kAttention:
      return "attention";
    case LayerKind::kRecurrent:
      return "recurrent";
    case LayerKind::kBoth:
      return "attention+recurrent";
    case LayerKind::kNeither:
      return "feed-forward";
    case LayerKind::kNextToken:
      return "next-token";
  }
  return "unknown";
}

double Inspection::bits_per_weight() const {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(parameters);
}

std::uint64_t Inspection::layer_count(LayerKind kind) const {
  return static_cast<std::uint64_t>(std::count(layers.begin(), layers.end(), kind));
}

std::string shape_text(const Tensor& tensor) {
  return fmt::format("{}", fmt::join(std::span(tensor.dims).first(tensor.dimension_count), " x "));
}

Inspection inspect(std::span<const File> parts) {
  const File& file = parts.front();
  Inspection facts;
  facts.architecture = text_of(file, "general.architecture");
  facts.name = text_of(file, "general.name");
  facts.licence = text_of(file, "general.license");
  facts.version = file.version();
  facts.parts = parts.size();
  add_tensors(parts, facts);

  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", facts.architecture, name); };
  facts.context_tokens = number_of(file, key("context_length"));
  facts.embedding = number_of(file, key("embedding_length"));
  facts.feed_forward = list_of(file, key("feed_forward_length"));
  facts.heads = list_of(file, key("attention.head_count"));
  facts.kv_heads = list_of(file, key("attention.head_count_kv"));
  if (facts.kv_heads.empty()) facts.kv_heads = facts.heads;
  facts.key_length = number_of(file, key("attention.key_length"));
  facts.value_length = number_of(file, key("attention.value_length"));
  if (!facts.key_length && facts.embedding && !facts.heads.empty() && facts.heads.front() > 0) {
    facts.key_length = *facts.embedding / facts.heads.front();
    if (!facts.value_length) facts.value_length = facts.key_length;
  }
  facts.rope_dimensions = number_of(file, key("rope.dimension_count"));
  if (const Value* base = file.find(key("rope.freq_base"))) facts.rope_base = base->as_real();
  facts.experts = number_of(file, key("expert_count"));
  const std::uint64_t layers = std::min(number_of(file, key("block_count")).value_or(0), kMaxLayers);
  const std::uint64_t next_token = std::min(number_of(file, key("nextn_predict_layers")).value_or(0), layers);
  facts.layers = layer_map(parts, layers, next_token);
  add_vocabulary(file, facts);
  return facts;
}

}  // namespace kazeia::gguf
