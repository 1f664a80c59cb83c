// The parts of an inference state outside of its timeline: rows of the attention cache, and the recurrent state.
//
// Upstream writes and reads states as one stream over an interface of its own (llama-io.h), which is implemented here
// so that rows can be taken and put back range by range, without a copy of the whole. The stream's bookkeeping between
// the rows is made here and not kept: what upstream is given consists of numbers that this file computed, and of rows
// whose size upstream itself asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/token.h"

struct llama_context;

namespace kazeia {

// One tensor of the state. `type` is a ggml_type.
struct StateRows {
  std::int32_t type = 0;
  std::uint64_t row_bytes = 0;

  bool operator==(const StateRows&) const = default;
};

// What the bytes of a state are. States of one model with equal layouts are interchangeable.
struct StateLayout {
  std::vector<StateRows> attention;  // K of every layer, then V of every layer; a row per token
  std::vector<StateRows> recurrent;  // convolution tails, then delta-rule states; one row each

  std::uint64_t attention_bytes_per_token() const { return sum(attention); }
  std::uint64_t recurrent_bytes() const { return sum(recurrent); }
  bool operator==(const StateLayout&) const = default;

 private:
  static std::uint64_t sum(const std::vector<StateRows>& tensors) {
    std::uint64_t bytes = 0;
    for (const StateRows& tensor : tensors) bytes += tensor.row_bytes;
    return bytes;
  }
};

// Rows of tokens [from, to) of every attention tensor, tensor after tensor in the layout's order.
struct AttentionRows {
  std::size_t from = 0;
  std::size_t to = 0;
  std::span<const std::byte> bytes;  // [(to - from) * attention_bytes_per_token]
};

// Called with consecutive pieces of any size; an error ends the call and is returned.
using ByteSink = std::function<Status(std::span<const std::byte> piece)>;

// A recurrent state with its f32 values as f16, and back. Half the bytes; not exact. Empty if a value is too large for
// f16.
std::vector<std::byte> halve_recurrent(const StateLayout& layout, std::span<const std::byte> state);
std::vector<std::byte> widen_recurrent(const StateLayout& layout, std::span<const std::byte> halved);

// --- for Timeline, which documents them; `tokens` are those in the context ---

// kUnsupported for a cache that is more than one attention cache and at most one recurrent state, or if upstream's
// stream is not the one known here.
Result<StateLayout> layout_of_state(const llama_context* context, std::span<const Token> tokens);
Status copy_attention_rows(const llama_context* context, std::span<const Token> tokens, std::size_t from,
                           std::size_t to, const ByteSink& sink);
Status copy_recurrent_rows(const llama_context* context, std::span<const Token> tokens, const ByteSink& sink);
// The context then holds exactly `tokens`; on failure it is empty.
Status put_state(llama_context* context, const StateLayout& layout, std::span<const Token> tokens, std::size_t kept,
                 std::span<const AttentionRows> rows, std::span<const std::byte> recurrent);
// Lengthens the state to `tokens`, of which the first `known` are in it: the last attention rows are copied, in place,
// to those of the others, and the recurrent state stays. kUnsupported: nothing changed; otherwise as put_state().
Status repeat_attention_rows(llama_context* context, std::span<const Token> tokens, std::size_t known);

}  // namespace kazeia
