// Checking a GBNF grammar before upstream's parser sees it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

struct llama_vocab;

namespace kazeia {

inline constexpr std::size_t kMaxGrammarBytes = 1u << 20;
inline constexpr int kMaxGrammarNesting = 128;
inline constexpr int kMaxGrammarRepetitions = 2000;  // upstream's; beyond it, it repeats without an end

struct GrammarFacts {
  bool names_tokens = false;  // has <[id]> or <text> elements, which match whole tokens
};

// kUsage with the reason if `gbnf` does not parse, has no "root", refers to a rule that does not exist, is nested
// too deeply or repeats too often. Upstream's own parser prints the whole grammar to stderr when it refuses
// one, recurses as deep as the text says, and never returns from a repetition like {5,2}.
Result<GrammarFacts> check_gbnf(const llama_vocab* vocabulary, const std::string& gbnf);

// "the `what` cannot be used: `reason`" as kUsage; of the reason only the first line, and not all of a long one.
Error unusable_grammar(std::string_view what, std::string_view reason);

// The deepest nesting of brackets, counting every one.
int deepest_nesting(std::string_view text, std::string_view opening, std::string_view closing);

}  // namespace kazeia
