// The vocabulary side of Model: text to tokens and back.
#include <exception>
#include <limits>

#include <fmt/format.h>

#include "engine/model.h"
#include "llama.h"

namespace kazeia {

std::int32_t Model::vocabulary_size() const {
  return llama_vocab_n_tokens(vocabulary());
}

Result<Tokens> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return kazeia::tokenize(vocabulary(), text, add_special, parse_special);
}

Result<Tokens> tokenize(const llama_vocab* vocabulary, std::string_view text, bool add_special, bool parse_special) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) / 2) {
    return Error(ErrorCode::kTooLarge, fmt::format("a text of {} bytes is too long to be tokenized", text.size()),
                 "Shorten it");
  }
  try {
    const auto length = static_cast<std::int32_t>(text.size());
    Tokens tokens(text.size() + 2);  // a token stands for at least one byte; two for begin and end of sequence
    std::int32_t count = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      count = llama_tokenize(vocabulary, text.data(), length, tokens.data(), static_cast<std::int32_t>(tokens.size()),
                             add_special, parse_special);
      if (count >= 0 || count == std::numeric_limits<std::int32_t>::min()) break;
      tokens.resize(static_cast<std::size_t>(-count));  // some vocabularies add a space or more than one token a byte
    }
    if (count < 0) return Error(ErrorCode::kEngine, "the tokenizer refused the text");
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("the tokenizer failed: {}", exception.what()));
  }
}

std::string Model::piece(Token token, bool render_special) const {
  if (token < 0 || token >= vocabulary_size()) return {};
  std::string bytes(32, '\0');
  try {
    for (int attempt = 0; attempt < 2; ++attempt) {
      const std::int32_t length = llama_token_to_piece(vocabulary(), token, bytes.data(),
                                                       static_cast<std::int32_t>(bytes.size()), 0, render_special);
      if (length >= 0) {
        bytes.resize(static_cast<std::size_t>(length));
        return bytes;
      }
      bytes.resize(static_cast<std::size_t>(-length));
    }
  } catch (const std::exception&) {
    // A token that upstream cannot render has no text.
  }
  return {};
}

bool Model::ends_generation(Token token) const {
  return token >= 0 && token < vocabulary_size() && llama_vocab_is_eog(vocabulary(), token);
}

}  // namespace kazeia
