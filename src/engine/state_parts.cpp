#include "engine/state_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "engine/snapshot.h"
#include "engine/upstream_errors.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama-io.h"
#include "llama-memory.h"
#include "llama.h"

namespace kazeia {
namespace {

constexpr llama_seq_id kSequence = 0;

template <typename Number>
void append(std::string& numbers, Number number) {
  numbers.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// --- The numbers between the rows, as llama_kv_cache::state_write and llama_memory_recurrent::state_write (llama.cpp
// --- 0.5.0) put them for one sequence whose cells are the first ones, in order.

// Up to the number of layers.
std::string attention_numbers(const llama_context* context, std::span<const Token> tokens) {
  const llama_rope_type rope = llama_model_rope_type(llama_get_model(context));
  const bool has_places =
      rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE || rope == LLAMA_ROPE_TYPE_VISION;
  std::string numbers;
  append(numbers, std::uint32_t{1});  // streams
  append(numbers, static_cast<std::uint32_t>(tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i);
    append(numbers, position);
    append(numbers, std::uint32_t{1});  // sequences
    if (has_places) {                   // a text's two-dimensional place is its position, twice
      append(numbers, position);
      append(numbers, position);
      append(numbers, tokens[i]);
    }
    append(numbers, kSequence);
  }
  append(numbers, std::uint32_t{0});  // V is not transposed
  return numbers;
}

std::string recurrent_numbers(const llama_context* context, std::size_t token_count) {
  std::string numbers;
  append(numbers, std::uint32_t{1});  // cells
  append(numbers, static_cast<std::int32_t>(token_count) - 1);
  append(numbers, std::uint32_t{0});  // sequences, left out for one
  append(numbers, std::uint32_t{0});  // not transposed
  append(numbers, static_cast<std::uint32_t>(llama_model_n_layer(llama_get_model(context))));
  return numbers;
}

std::string row_numbers(const StateRows& rows) {
  std::string numbers;
  append(numbers, rows.type);
  append(numbers, rows.row_bytes);
  return numbers;
}

bool has_recurrent(const llama_context* context) {
  const llama_model* model = llama_get_model(context);
  return llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
}

bool has_attention(const llama_context* context) {
  return !llama_model_is_recurrent(llama_get_model(context));
}

// --- Taking apart ---

struct LiveRows {
  StateRows rows;
  const ggml_tensor* tensor = nullptr;
  std::size_t offset = 0;
};

struct LiveState {
  std::vector<LiveRows> attention;
  std::vector<LiveRows> recurrent;

  StateLayout layout() const {
    StateLayout layout;
    for (const LiveRows& live : attention) layout.attention.push_back(live.rows);
    for (const LiveRows& live : recurrent) layout.recurrent.push_back(live.rows);
    return layout;
  }
};

// Notes what upstream writes instead of copying it.
class Recorder : public llama_io_write_i {
 public:
  struct Step {
    std::string numbers;  // written before the rows
    const ggml_tensor* tensor;
    std::size_t offset;
    std::size_t bytes;
  };

  void write(const void* source, std::size_t size) override {
    numbers_.append(static_cast<const char*>(source), size);
    bytes_ += size;
  }
  void write_tensor(ggml_tensor* tensor, std::size_t offset, std::size_t size) override {
    steps_.push_back({std::exchange(numbers_, {}), tensor, offset, size});
    bytes_ += size;
  }
  std::size_t n_bytes() override { return bytes_; }

  const std::vector<Step>& steps() const { return steps_; }
  bool ends_with_rows() const { return numbers_.empty(); }

 private:
  std::string numbers_;
  std::vector<Step> steps_;
  std::size_t bytes_ = 0;
};

Error not_known() {
  return Error(ErrorCode::kUnsupported, "the state of this model cannot be taken apart",
               "Conversations are read again instead");
}

// The step's rows, `count` of them, if it says what is expected.
Result<LiveRows> rows_in(const Recorder::Step& step, const std::string& before, std::size_t count) {
  LiveRows live{{static_cast<std::int32_t>(step.tensor->type), step.bytes / count}, step.tensor, step.offset};
  if (step.bytes % count != 0 || step.numbers != before + row_numbers(live.rows)) return not_known();
  return live;
}

Result<LiveState> take_apart(const llama_context* context, std::span<const Token> tokens) {
  if (tokens.empty()) return not_known();
  Recorder recorder;
  try {
    llama_get_memory(context)->state_write(recorder, kSequence, 0);
  } catch (const std::exception&) {
    return not_known();
  }
  const std::vector<Recorder::Step>& steps = recorder.steps();
  std::size_t at = 0;
  LiveState state;
  if (has_attention(context)) {
    std::string before = attention_numbers(context, tokens);
    std::uint32_t layers = 0;
    if (steps.empty() || steps[0].numbers.size() < before.size() + sizeof(layers)) return not_known();
    std::memcpy(&layers, steps[0].numbers.data() + before.size(), sizeof(layers));
    if (layers == 0 || layers > steps.size() / 2) return not_known();
    append(before, layers);
    for (; at < 2 * std::size_t{layers}; ++at) {
      KAZEIA_ASSIGN(const LiveRows live, rows_in(steps[at], before, tokens.size()));
      if (live.offset != 0) return not_known();
      state.attention.push_back(live);
      before.clear();
    }
  }
  if (has_recurrent(context)) {
    std::string before = recurrent_numbers(context, tokens.size());
    for (; at < steps.size(); ++at) {
      KAZEIA_ASSIGN(const LiveRows live, rows_in(steps[at], before, 1));
      state.recurrent.push_back(live);
      before.clear();
    }
    if (state.recurrent.empty()) return not_known();
  }
  if (at != steps.size() || !recorder.ends_with_rows()) return not_known();
  return state;
}

Status copy_bytes(const ggml_tensor* tensor, std::size_t offset, std::size_t bytes, const ByteSink& sink) {
  const ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  if (ggml_backend_buffer_is_host(buffer)) {
    return sink({static_cast<const std::byte*>(tensor->data) + offset, bytes});
  }
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::vector<std::byte> piece(std::min(bytes, kPieceBytes));
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t width = std::min(piece.size(), bytes - done);
    ggml_backend_tensor_get(tensor, piece.data(), offset + done, width);
    KAZEIA_TRY(sink(std::span(piece).first(width)));
    done += width;
  }
  return {};
}

// --- Putting back ---

// Gives upstream the numbers, and lets it ask for the rows.
class Player : public llama_io_read_i {
 public:
  Player(std::string numbers, const StateLayout& layout, std::size_t token_count)
      : numbers_(std::move(numbers)), layout_(layout), token_count_(token_count) {}

  void read(void* target, std::size_t size) override {
    if (size > numbers_.size() - at_) throw std::runtime_error("upstream reads more than it wrote");
    std::memcpy(target, numbers_.data() + at_, size);
    at_ += size;
  }

  void read_tensor(ggml_tensor* tensor, std::size_t offset, std::size_t size) override {
    const std::size_t index = tensors_read_++;
    if (index < layout_.attention.size()) {
      const std::size_t row_bytes = layout_.attention[index].row_bytes;
      if (offset != 0 || size != token_count_ * row_bytes) throw std::runtime_error("the rows are not where they were");
      put_attention(tensor, row_bytes);
    } else if (index < layout_.attention.size() + layout_.recurrent.size()) {
      if (size != layout_.recurrent[index - layout_.attention.size()].row_bytes) {
        throw std::runtime_error("the recurrent state has another size");
      }
      put_recurrent(tensor, offset, size);
    } else {
      throw std::runtime_error("upstream reads more rows than it wrote");
    }
  }

  std::size_t n_bytes() override { return at_; }
  bool done() const {
    return at_ == numbers_.size() && tensors_read_ == layout_.attention.size() + layout_.recurrent.size();
  }

 protected:
  std::size_t token_count() const { return token_count_; }
  // The rows of all tokens, from the tensor's beginning.
  virtual void put_attention(ggml_tensor* tensor, std::size_t row_bytes) = 0;
  virtual void put_recurrent(ggml_tensor* tensor, std::size_t offset, std::size_t size) = 0;

 private:
  std::string numbers_;
  std::size_t at_ = 0;
  const StateLayout& layout_;
  std::size_t token_count_;
  std::size_t tensors_read_ = 0;
};

class PartsPlayer : public Player {
 public:
  PartsPlayer(std::string numbers, const StateLayout& layout, std::size_t token_count, std::size_t kept,
              std::span<const AttentionRows> parts, std::span<const std::byte> recurrent)
      : Player(std::move(numbers), layout, token_count), kept_(kept), parts_(parts), recurrent_(recurrent) {}

 private:
  void put_attention(ggml_tensor* tensor, std::size_t row_bytes) override {
    for (const AttentionRows& part : parts_) {
      const std::size_t from = std::max(part.from, kept_);
      const std::size_t to = std::min(part.to, token_count());
      if (from >= to) continue;
      const std::size_t source = row_bytes_before_ * (part.to - part.from) + (from - part.from) * row_bytes;
      ggml_backend_tensor_set(tensor, part.bytes.data() + source, from * row_bytes, (to - from) * row_bytes);
    }
    row_bytes_before_ += row_bytes;
  }

  void put_recurrent(ggml_tensor* tensor, std::size_t offset, std::size_t size) override {
    ggml_backend_tensor_set(tensor, recurrent_.data() + recurrent_before_, offset, size);
    recurrent_before_ += size;
  }

  std::size_t kept_;
  std::span<const AttentionRows> parts_;
  std::span<const std::byte> recurrent_;
  std::size_t row_bytes_before_ = 0;
  std::size_t recurrent_before_ = 0;
};

// Upstream moves its bookkeeping only: what is in the tensors stays there.
class RepeatingPlayer : public Player {
 public:
  RepeatingPlayer(std::string numbers, const StateLayout& layout, std::size_t token_count, std::size_t known,
                  std::span<const LiveRows> recurrent)
      : Player(std::move(numbers), layout, token_count), known_(known), recurrent_(recurrent) {}

 private:
  void put_attention(ggml_tensor* tensor, std::size_t row_bytes) override {
    const std::size_t width = std::min(kRepeatedTokens, known_);
    rows_.resize(width * row_bytes);
    ggml_backend_tensor_get(tensor, rows_.data(), (known_ - width) * row_bytes, rows_.size());
    for (std::size_t at = known_; at < token_count(); at += width) {
      const std::size_t count = std::min(width, token_count() - at);
      ggml_backend_tensor_set(tensor, rows_.data(), at * row_bytes, count * row_bytes);
    }
  }

  void put_recurrent(ggml_tensor* tensor, std::size_t offset, std::size_t /*size*/) override {
    const LiveRows& live = recurrent_[recurrent_seen_++];
    if (live.tensor != tensor || live.offset != offset) throw std::runtime_error("the recurrent state has moved");
  }

  static constexpr std::size_t kRepeatedTokens = 64;
  std::size_t known_;
  std::span<const LiveRows> recurrent_;
  std::size_t recurrent_seen_ = 0;
  std::vector<std::byte> rows_;
};

std::string numbers_for(const llama_context* context, const StateLayout& layout, std::span<const Token> tokens) {
  std::string numbers;
  if (has_attention(context)) {
    numbers = attention_numbers(context, tokens);
    append(numbers, static_cast<std::uint32_t>(layout.attention.size() / 2));
    for (const StateRows& rows : layout.attention) numbers += row_numbers(rows);
  }
  if (has_recurrent(context)) {
    numbers += recurrent_numbers(context, tokens.size());
    for (const StateRows& rows : layout.recurrent) numbers += row_numbers(rows);
  }
  return numbers;
}

Status check_parts(const StateLayout& layout, std::size_t token_count, std::size_t kept,
                   std::span<const AttentionRows> parts, std::span<const std::byte> recurrent) {
  const Error wrong(ErrorCode::kUsage, "the parts of a state do not fit together");
  if (recurrent.size() != layout.recurrent_bytes() || layout.attention.size() % 2 != 0) return wrong;
  const std::uint64_t per_token = layout.attention_bytes_per_token();
  std::size_t covered = layout.attention.empty() ? token_count : kept;
  for (const AttentionRows& part : parts) {
    if (part.from > covered || part.to <= part.from || part.bytes.size() != (part.to - part.from) * per_token) {
      return wrong;
    }
    covered = std::max(covered, part.to);
  }
  if (covered < token_count) return wrong;
  return {};
}

// The player that `make` gives; what making it throws is upstream's as well.
template <typename Make>
Status play(llama_context* context, std::size_t token_count, Make make) {
  llama_memory_t memory = llama_get_memory(context);
  const UpstreamErrors errors;
  std::string reason;
  try {
    auto player = make();
    memory->state_read(player, kSequence, 0);
    if (player.done() && state_ends_at(context, token_count)) return {};
    reason = "it is not complete";
  } catch (const std::exception& exception) {
    reason = errors.reason(exception.what());
  }
  llama_memory_clear(memory, true);
  return Error(ErrorCode::kEngine, fmt::format("a kept state could not be put back: {}", reason),
               "The conversation is read again instead");
}

}  // namespace

std::vector<std::byte> halve_recurrent(const StateLayout& layout, std::span<const std::byte> state) {
  std::vector<std::byte> halved;
  halved.reserve(state.size() / 2);
  for (const StateRows& rows : layout.recurrent) {
    const std::span<const std::byte> row = state.first(rows.row_bytes);
    state = state.subspan(rows.row_bytes);
    const std::size_t at = halved.size();
    if (rows.type != GGML_TYPE_F32) {
      halved.insert(halved.end(), row.begin(), row.end());
      continue;
    }
    const std::size_t values = row.size() / sizeof(float);
    const std::span<const float> exact(reinterpret_cast<const float*>(row.data()), values);
    constexpr float kLargestHalf = 65504;
    if (!std::all_of(exact.begin(), exact.end(), [](float value) { return std::abs(value) <= kLargestHalf; }))
      return {};
    halved.resize(at + values * sizeof(ggml_fp16_t));
    ggml_fp32_to_fp16_row(exact.data(), reinterpret_cast<ggml_fp16_t*>(halved.data() + at),
                          static_cast<std::int64_t>(values));
  }
  return halved;
}

std::vector<std::byte> widen_recurrent(const StateLayout& layout, std::span<const std::byte> halved) {
  std::vector<std::byte> state;
  state.reserve(layout.recurrent_bytes());
  for (const StateRows& rows : layout.recurrent) {
    const bool exact = rows.type != GGML_TYPE_F32;
    const std::size_t width = exact ? rows.row_bytes : rows.row_bytes / 2;
    const std::span<const std::byte> row = halved.first(width);
    halved = halved.subspan(width);
    const std::size_t at = state.size();
    if (exact) {
      state.insert(state.end(), row.begin(), row.end());
      continue;
    }
    state.resize(at + rows.row_bytes);
    ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t*>(row.data()), reinterpret_cast<float*>(state.data() + at),
                          static_cast<std::int64_t>(rows.row_bytes / sizeof(float)));
  }
  return state;
}

Result<StateLayout> layout_of_state(const llama_context* context, std::span<const Token> tokens) {
  KAZEIA_ASSIGN(const LiveState state, take_apart(context, tokens));
  return state.layout();
}

Status copy_attention_rows(const llama_context* context, std::span<const Token> tokens, std::size_t from,
                           std::size_t to, const ByteSink& sink) {
  KAZEIA_ASSIGN(const LiveState state, take_apart(context, tokens));
  for (const LiveRows& live : state.attention) {
    KAZEIA_TRY(copy_bytes(live.tensor, from * live.rows.row_bytes, (to - from) * live.rows.row_bytes, sink));
  }
  return {};
}

Status copy_recurrent_rows(const llama_context* context, std::span<const Token> tokens, const ByteSink& sink) {
  KAZEIA_ASSIGN(const LiveState state, take_apart(context, tokens));
  for (const LiveRows& live : state.recurrent) {
    KAZEIA_TRY(copy_bytes(live.tensor, live.offset, live.rows.row_bytes, sink));
  }
  return {};
}

Status put_state(llama_context* context, const StateLayout& layout, std::span<const Token> tokens, std::size_t kept,
                 std::span<const AttentionRows> rows, std::span<const std::byte> recurrent) {
  KAZEIA_TRY(check_parts(layout, tokens.size(), kept, rows, recurrent));
  return play(context, tokens.size(), [&] {
    return PartsPlayer(numbers_for(context, layout, tokens), layout, tokens.size(), kept, rows, recurrent);
  });
}

Status repeat_attention_rows(llama_context* context, std::span<const Token> tokens, std::size_t known) {
  KAZEIA_ASSIGN(const LiveState state, take_apart(context, tokens.first(known)));
  const StateLayout layout = state.layout();
  return play(context, tokens.size(), [&] {
    return RepeatingPlayer(numbers_for(context, layout, tokens), layout, tokens.size(), known, state.recurrent);
  });
}

}  // namespace kazeia
