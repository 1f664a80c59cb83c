// The facts about a model that `inspect` shows. Pure reading: nothing is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"

namespace kazeia::gguf {

enum class LayerKind {
  kAttention,  // full attention: its cache grows with the context
  kRecurrent,  // a state of constant size (gated delta net, state-space model)
  kBoth,       // attention and recurrence side by side
  kNeither,    // feed-forward only
  kNextToken,  // a multi-token-prediction layer behind the model proper
};
std::string_view layer_kind_name(LayerKind kind);  // "attention", "recurrent", ...

struct TypeShare {
  std::string_view type;  // "Q4_0"
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

struct SpecialToken {
  std::string role;  // "bos", "eos", ...
  std::uint64_t id = 0;
  std::string text;  // as in the file; empty if the id is beyond the vocabulary
};

// Strings are as the file has them (not made printable); numbers are absent when the file does not say.
struct Inspection {
  std::string architecture;
  std::string name;
  std::string licence;
  std::uint32_t version = 0;
  std::uint64_t parts = 1;
  std::uint64_t file_bytes = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::vector<TypeShare> types;  // most bytes first

  std::optional<std::uint64_t> context_tokens;
  std::optional<std::uint64_t> embedding;
  std::vector<std::uint64_t> feed_forward;  // one entry, or one per layer if they differ
  std::vector<std::uint64_t> heads;
  std::vector<std::uint64_t> kv_heads;
  std::optional<std::uint64_t> key_length;  // elements per head
  std::optional<std::uint64_t> value_length;
  std::optional<std::uint64_t> rope_dimensions;
  std::optional<double> rope_base;
  std::optional<std::uint64_t> experts;
  std::vector<LayerKind> layers;  // [block_count], as the tensors show it
  bool tied_embeddings = false;   // the output head is the embedding table

  std::string tokenizer;      // "gpt2"
  std::string pre_tokenizer;  // "qwen2"
  std::uint64_t vocabulary = 0;
  std::uint64_t merges = 0;
  std::vector<SpecialToken> special_tokens;
  std::uint64_t chat_template_bytes = 0;  // 0: none
  bool template_has_thinking = false;     // it looks at enable_thinking
  bool template_has_tools = false;

  double bits_per_weight() const;
  std::uint64_t layer_count(LayerKind kind) const;
};

// "2560 x 9728"
std::string shape_text(const Tensor& tensor);

// `parts` of one model, the first with the metadata. Never fails: what is absent or of a wrong type is left out.
Inspection inspect(std::span<const File> parts);

}  // namespace kazeia::gguf
