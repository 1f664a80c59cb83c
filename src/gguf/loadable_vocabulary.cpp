#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gguf/loadable.h"

namespace kazeia::gguf {
namespace {

constexpr std::string_view kElsewhere = "Get the model from another source, or convert it again";

Error contradiction(const std::string& reason) {
  return Error(ErrorCode::kFile, fmt::format("unusable vocabulary: {}", reason), std::string(kElsewhere));
}

Status check_array(const File& file, std::string_view key, std::initializer_list<ValueType> elements,
                   std::uint64_t least) {
  const Value* value = file.find(key);
  if (value == nullptr) return {};
  if (!value->is_array() || std::find(elements.begin(), elements.end(), value->element) == elements.end()) {
    return contradiction(
        fmt::format("'{}' at byte {} must be an array of {}", key, value->offset, value_type_name(*elements.begin())));
  }
  if (value->count < least) {
    return contradiction(fmt::format("'{}' has {} entries for {} tokens", key, value->count, least));
  }
  return {};
}

// Two tokens with one text, or nothing. Sorting by hash and then by text keeps the worst case at n log n for
// tokens that somebody chose to collide.
std::optional<std::string_view> repeated_token(const std::vector<std::string_view>& tokens) {
  std::vector<std::pair<std::size_t, std::uint32_t>> order;
  order.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    order.emplace_back(std::hash<std::string_view>{}(tokens[i]), static_cast<std::uint32_t>(i));
  }
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : tokens[a.second] < tokens[b.second];
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1].first == order[i].first && tokens[order[i - 1].second] == tokens[order[i].second]) {
      return tokens[order[i].second];
    }
  }
  return {};
}

Status check_tokens(const Value& list) {
  std::vector<std::string_view> tokens = list.strings();
  if (tokens.empty()) return contradiction("it has no tokens");
  if (tokens.size() > INT32_MAX) return contradiction(fmt::format("it has {} tokens", tokens.size()));
  // Upstream stores an empty token under a name of its own, which must not collide with another one either.
  std::vector<std::string> invented;
  const auto empty = std::count_if(tokens.begin(), tokens.end(), [](std::string_view token) { return token.empty(); });
  invented.reserve(static_cast<std::size_t>(empty));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) tokens[i] = invented.emplace_back(fmt::format("[EMPTY_{}]", i));
  }
  if (const auto twice = repeated_token(tokens)) {
    return contradiction(fmt::format("token '{}' appears twice", printable(*twice, 40)));
  }
  return {};
}

// Upstream adds the begin or end token to a prompt without looking whether there is one.
Status check_added_token(const File& file, std::string_view flag_key, std::string_view id_key, bool flag_default,
                         std::optional<std::uint64_t> id_default, std::uint64_t tokens) {
  bool added = flag_default;
  if (const Value* flag = file.find(flag_key)) {
    if (!flag->as_bool()) {
      return contradiction(fmt::format("'{}' at byte {} must be a boolean", flag_key, flag->offset));
    }
    added = *flag->as_bool();
  }
  std::optional<std::uint64_t> id = id_default;
  if (id && *id >= tokens) id.reset();
  if (const Value* value = file.find(id_key)) {
    if (value->type != ValueType::kU32) {
      return contradiction(fmt::format("'{}' at byte {} must be u32", id_key, value->offset));
    }
    // An id beyond the vocabulary is how some converters write "none"; upstream keeps its default then.
    if (*value->as_unsigned() < tokens) id = value->as_unsigned();
  }
  if (added && !id) {
    return contradiction(fmt::format("'{}' asks for a token that '{}' does not name", flag_key, id_key));
  }
  return {};
}

}  // namespace

Status check_vocabulary(const File& metadata) {
  const Value* model = metadata.find("tokenizer.ggml.model");
  if (model == nullptr) return {};  // upstream's refusal is clean
  const auto name = model->as_string();
  if (!name) return contradiction(fmt::format("'tokenizer.ggml.model' at byte {} must be a string", model->offset));
  if (*name == "no_vocab" || *name == "none") {
    return Error(ErrorCode::kUnsupported, "the model has no vocabulary", "Choose a complete model");
  }

  const Value* list = metadata.find("tokenizer.ggml.tokens");
  if (list == nullptr) return contradiction("'tokenizer.ggml.tokens' is missing");
  KAZEIA_TRY(check_array(metadata, "tokenizer.ggml.tokens", {ValueType::kString}, 1));
  KAZEIA_TRY(check_tokens(*list));
  KAZEIA_TRY(check_array(metadata, "tokenizer.ggml.scores", {ValueType::kF32, ValueType::kI32}, list->count));
  KAZEIA_TRY(check_array(metadata, "tokenizer.ggml.token_type", {ValueType::kI32}, list->count));
  KAZEIA_TRY(check_array(metadata, "tokenizer.ggml.merges", {ValueType::kString}, 0));
  KAZEIA_TRY(check_array(metadata, "tokenizer.ggml.suppress_tokens", {ValueType::kI32}, 0));
  if (const Value* merges = metadata.find("tokenizer.ggml.merges"); merges != nullptr && merges->count > INT32_MAX) {
    return contradiction(fmt::format("it has {} merges", merges->count));
  }
  for (const std::string_view key : {"tokenizer.ggml.pre", "tokenizer.chat_template"}) {
    const Value* value = metadata.find(key);
    if (value != nullptr && !value->as_string()) {
      return contradiction(fmt::format("'{}' at byte {} must be a string", key, value->offset));
    }
  }

  // Defaults of upstream by tokenizer family: does it add the token unasked, and which id does it assume?
  const bool sentence_piece = *name == "llama";
  const bool word_piece = *name == "bert";
  const bool byte_pair = *name == "gpt2";
  const std::optional<std::uint64_t> begin = sentence_piece ? std::optional<std::uint64_t>(1)
                                             : word_piece   ? std::optional<std::uint64_t>(101)
                                             : byte_pair    ? std::optional<std::uint64_t>(11)
                                                            : std::nullopt;
  const std::optional<std::uint64_t> end = sentence_piece  ? std::optional<std::uint64_t>(2)
                                           : byte_pair     ? std::optional<std::uint64_t>(11)
                                           : *name == "t5" ? std::optional<std::uint64_t>(1)
                                                           : std::nullopt;
  // Some byte-pair pre-tokenizers switch the begin token on, so it has to exist unless the file says no.
  KAZEIA_TRY(check_added_token(metadata, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id",
                               sentence_piece || word_piece || byte_pair, begin, list->count));
  return check_added_token(metadata, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", *name == "t5", end,
                           list->count);
}

}  // namespace kazeia::gguf
