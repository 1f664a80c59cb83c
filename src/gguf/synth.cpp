#include "gguf/synth.h"

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/units.h"
#include "gguf/random_blocks.h"
#include "gguf/vocabulary.h"

namespace kazeia::gguf {
namespace {

// Large enough that a thread per piece costs nothing, small enough to report progress and stop soon.
constexpr std::uint64_t kPieceBytes = 8 * kMiB;

struct Piece {
  const TensorPlan* tensor;
  std::uint64_t tensor_index;
  std::uint64_t index;  // within the tensor
  std::uint64_t bytes;
};

std::vector<Piece> cut(const std::vector<TensorPlan>& tensors, const Header& header) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t block = tensor_type(tensors[i].type).block_bytes;
    const std::uint64_t whole = kPieceBytes / block * block;
    std::uint64_t left = header.tensor_bytes(i);
    for (std::uint64_t index = 0; left > 0; ++index) {
      pieces.push_back({&tensors[i], i, index, std::min(left, whole)});
      left -= pieces.back().bytes;
    }
  }
  return pieces;
}

void generate(const Piece& piece, std::uint64_t seed, std::vector<std::byte>& buffer) {
  Random random(seed, piece.tensor_index, piece.index);
  fill_blocks(std::span(buffer).first(piece.bytes), piece.tensor->type, piece.tensor->fill, piece.tensor->dims[0],
              random);
}

// The next piece is made while the last one is written. Without a second thread it is made at once.
std::future<void> generate_ahead(const Piece& piece, std::uint64_t seed, std::vector<std::byte>& buffer) {
  try {
    return std::async(std::launch::async, [&piece, seed, &buffer] { generate(piece, seed, buffer); });
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, [&piece, seed, &buffer] { generate(piece, seed, buffer); });
  }
}

}  // namespace

Header synthetic_header(const Shape& shape) {
  Header header;
  header.add_string("general.architecture", shape.architecture);
  header.add_string("general.name", fmt::format("Synthetic {}", shape.name));
  header.add_string("general.description", "Random weights in the shape of a public model, for measurements");
  header.add_string("general.license", "CC0-1.0");
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", shape.architecture, name); };
  header.add_u32(key("block_count"), shape.layers);
  header.add_u32(key("context_length"), shape.context_tokens);
  header.add_u32(key("embedding_length"), shape.embedding);
  header.add_u32(key("feed_forward_length"), shape.feed_forward);
  header.add_u32(key("attention.head_count"), shape.heads);
  header.add_u32(key("attention.head_count_kv"), shape.kv_heads);
  header.add_u32(key("attention.key_length"), shape.head_dim);
  header.add_u32(key("attention.value_length"), shape.head_dim);
  header.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  header.add_f32(key("rope.freq_base"), shape.rope_base);
  if (shape.hybrid()) {
    header.add_u32(key("full_attention_interval"), shape.full_attention_interval);
    // Pairs of rotated elements that turn with time, height, width: of text all three are the position.
    header.add_i32s(key("rope.dimension_sections"), std::array<std::int32_t, 4>{11, 11, 10, 0});
    header.add_u32(key("rope.dimension_count"), shape.rope_dims);
    header.add_u32(key("ssm.conv_kernel"), shape.convolution);
    header.add_u32(key("ssm.inner_size"), shape.recurrent_value_heads * shape.recurrent_head_dim);
    header.add_u32(key("ssm.state_size"), shape.recurrent_head_dim);
    header.add_u32(key("ssm.time_step_rank"), shape.recurrent_value_heads);
    header.add_u32(key("ssm.group_count"), shape.recurrent_key_heads);
  }
  const Vocabulary vocabulary = make_vocabulary(shape.vocabulary, shape.first_special_token);
  header.add_string("tokenizer.ggml.model", "gpt2");
  header.add_string("tokenizer.ggml.pre", shape.hybrid() ? "qwen35" : "qwen2");
  header.add_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  header.add_i32s("tokenizer.ggml.token_type", vocabulary.token_types);
  header.add_strings("tokenizer.ggml.merges", vocabulary.merges);
  header.add_u32("tokenizer.ggml.eos_token_id", vocabulary.end_of_turn);
  header.add_u32("tokenizer.ggml.bos_token_id", vocabulary.end_of_text);
  header.add_u32("tokenizer.ggml.padding_token_id", vocabulary.end_of_text);
  header.add_bool("tokenizer.ggml.add_bos_token", false);
  header.add_string("tokenizer.chat_template", chat_template());
  header.add_u32("general.quantization_version", kQuantizationVersion);
  header.add_u32("general.file_type", 2);  // mostly Q4_0
  for (const TensorPlan& tensor : tensors_of(shape)) header.add_tensor(tensor.name, tensor.type, tensor.dims);
  return header;
}

Result<std::uint64_t> write_synthetic(const Shape& shape, const std::string& path, const SynthOptions& options) {
  const std::vector<TensorPlan> tensors = tensors_of(shape);
  std::optional<Writer> writer;
  std::vector<Piece> pieces;
  std::uint64_t total = 0;
  {
    const Header header = synthetic_header(shape);
    total = header.file_bytes();
    KAZEIA_TRY(check_output(path, total, options.overwrite));
    KAZEIA_ASSIGN(Writer created, Writer::create(path, header));
    writer.emplace(std::move(created));
    pieces = cut(tensors, header);
  }

  std::array<std::vector<std::byte>, 2> buffers;
  for (auto& buffer : buffers) buffer.resize(kPieceBytes);
  std::future<void> ahead = generate_ahead(pieces.front(), options.seed, buffers[0]);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    ahead.get();
    // From here a return waits for the thread: the future of std::async joins in its destructor, and it is declared
    // after the buffers that the thread writes to.
    if (i + 1 < pieces.size()) ahead = generate_ahead(pieces[i + 1], options.seed, buffers[(i + 1) % 2]);
    if (options.cancel != nullptr && options.cancel->requested()) {
      return Error(ErrorCode::kCancelled, fmt::format("stopped; '{}' was not written", path));
    }
    KAZEIA_TRY(writer->write(std::span(buffers[i % 2]).first(pieces[i].bytes)));
    if (options.on_progress) options.on_progress(writer->bytes_written(), total);
  }
  KAZEIA_TRY(writer->commit());
  return total;
}

}  // namespace kazeia::gguf
