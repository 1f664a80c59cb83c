// The public models whose exact shapes `synth` can write: hyperparameters, tensor names, types and order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/types.h"

namespace kazeia::gguf {

struct Shape {
  std::string_view name;          // "qwen3.5-4b"
  std::string_view architecture;  // "qwen35"
  std::uint32_t layers;
  std::uint32_t embedding;
  std::uint32_t feed_forward;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  std::uint32_t vocabulary;
  std::uint32_t context_tokens;
  std::uint32_t first_special_token;  // the id of <|endoftext|>; the other special tokens follow
  float rope_base;
  // Of the hybrid models only; 0 for a dense one.
  std::uint32_t full_attention_interval;  // every n-th layer is full attention, the others recurrent
  std::uint32_t rope_dims;
  std::uint32_t recurrent_key_heads;
  std::uint32_t recurrent_value_heads;
  std::uint32_t recurrent_head_dim;
  std::uint32_t convolution;

  bool hybrid() const { return full_attention_interval != 0; }
};

std::span<const Shape> all_shapes();
const Shape* find_shape(std::string_view name);  // null if unknown

// What the random numbers of a tensor have to look like for activations to stay in range.
enum class Fill {
  kMatrix,     // standard deviation 1/sqrt(columns)
  kEmbedding,  // as the head of a tied model: logits of a few units
  kNorm,       // near 1
  kDecay,      // ssm_a: negative
  kTimeStep,   // ssm_dt bias
  kConvolution,
};

struct TensorPlan {
  std::string name;
  TypeId type;
  std::vector<std::uint64_t> dims;  // [columns, rows, ...]
  Fill fill;
};

// In the order in which the published files have them: by name inside a layer.
std::vector<TensorPlan> tensors_of(const Shape& shape);

}  // namespace kazeia::gguf
