#include "gguf/shapes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace kazeia::gguf {
namespace {

// From the configurations published with the models.
constexpr std::array kShapes = {
    Shape{"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 151643, 1e6f, 0, 0, 0, 0, 0, 0},
    Shape{"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 151643, 1e6f, 0, 0, 0, 0, 0, 0},
    Shape{"qwen3.5-0.8b", "qwen35", 24, 1024, 3584, 8, 2, 256, 248320, 262144, 248044, 1e7f, 4, 64, 16, 16, 128, 4},
    Shape{"qwen3.5-4b", "qwen35", 32, 2560, 9216, 16, 4, 256, 248320, 262144, 248044, 1e7f, 4, 64, 16, 32, 128, 4},
};

}  // namespace

std::span<const Shape> all_shapes() {
  return kShapes;
}

const Shape* find_shape(std::string_view name) {
  const auto at = std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& shape) { return shape.name == name; });
  return at == kShapes.end() ? nullptr : &*at;
}

std::vector<TensorPlan> tensors_of(const Shape& shape) {
  std::vector<TensorPlan> plan;
  const auto add = [&](std::string name, TypeId type, std::vector<std::uint64_t> dims, Fill fill) {
    plan.push_back({std::move(name), type, std::move(dims), fill});
  };
  const std::uint64_t width = shape.embedding;
  add("output_norm.weight", TypeId::kF32, {width}, Fill::kNorm);
  // No output.weight: the head of these models is the embedding table.
  add("token_embd.weight", TypeId::kQ6_K, {width, shape.vocabulary}, Fill::kEmbedding);

  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    const auto matrix = [&](std::string_view name, std::uint64_t columns, std::uint64_t rows) {
      add(fmt::format("blk.{}.{}.weight", i, name), TypeId::kQ4_0, {columns, rows}, Fill::kMatrix);
    };
    const auto norm = [&](std::string_view name, std::uint64_t size) {
      add(fmt::format("blk.{}.{}.weight", i, name), TypeId::kF32, {size}, Fill::kNorm);
    };
    const bool recurrent = shape.hybrid() && (i + 1) % shape.full_attention_interval != 0;
    const std::uint64_t key_rows = std::uint64_t{shape.recurrent_key_heads} * shape.recurrent_head_dim;
    const std::uint64_t value_rows = std::uint64_t{shape.recurrent_value_heads} * shape.recurrent_head_dim;
    const std::uint64_t query_rows = std::uint64_t{shape.heads} * shape.head_dim;
    const std::uint64_t kv_rows = std::uint64_t{shape.kv_heads} * shape.head_dim;

    if (recurrent) {
      matrix("attn_gate", width, value_rows);
      norm("attn_norm", width);
      matrix("attn_qkv", width, 2 * key_rows + value_rows);
    } else {
      matrix("attn_k", width, kv_rows);
      norm("attn_k_norm", shape.head_dim);
      norm("attn_norm", width);
      matrix("attn_output", query_rows, width);
      matrix("attn_q", width, shape.hybrid() ? 2 * query_rows : query_rows);  // hybrid: query and output gate
      norm("attn_q_norm", shape.head_dim);
      matrix("attn_v", width, kv_rows);
    }
    matrix("ffn_down", shape.feed_forward, width);
    matrix("ffn_gate", width, shape.feed_forward);
    if (!shape.hybrid()) norm("ffn_norm", width);
    matrix("ffn_up", width, shape.feed_forward);
    if (shape.hybrid()) norm("post_attention_norm", width);
    if (recurrent) {
      const std::uint64_t heads = shape.recurrent_value_heads;
      add(fmt::format("blk.{}.ssm_a", i), TypeId::kF32, {heads}, Fill::kDecay);
      matrix("ssm_alpha", width, heads);
      matrix("ssm_beta", width, heads);
      add(fmt::format("blk.{}.ssm_conv1d.weight", i), TypeId::kF32, {shape.convolution, 2 * key_rows + value_rows},
          Fill::kConvolution);
      add(fmt::format("blk.{}.ssm_dt.bias", i), TypeId::kF32, {heads}, Fill::kTimeStep);
      norm("ssm_norm", shape.recurrent_head_dim);
      matrix("ssm_out", value_rows, width);
    }
  }
  return plan;
}

}  // namespace kazeia::gguf
