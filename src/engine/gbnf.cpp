#include "engine/gbnf.h"

#include <algorithm>
#include <charconv>
#include <exception>

#include <fmt/format.h>

#include "llama-grammar.h"
#include "llama.h"

namespace kazeia {
namespace {

constexpr std::string_view kWhat = "grammar";

// The text with its literals, character classes and comments blanked out: what is left is structure.
std::string structure_of(std::string_view gbnf) {
  std::string structure(gbnf);
  char closing = '\0';
  for (std::size_t i = 0; i < structure.size(); ++i) {
    char& c = structure[i];
    if (closing == '\0') {
      closing = c == '"' ? '"' : c == '[' ? ']' : c == '#' ? '\n' : '\0';
      continue;
    }
    if (c == '\\' && closing != '\n' && i + 1 < structure.size()) {
      c = ' ';
      structure[++i] = ' ';
      continue;
    }
    if (c == closing) {
      closing = '\0';
    } else {
      c = ' ';
    }
  }
  return structure;
}

// Reads a number after blanks at `position`, -1 if there is none; saturates far above the limit.
long read_count(std::string_view text, std::size_t& position) {
  while (position < text.size() && (text[position] == ' ' || text[position] == '\t')) ++position;
  long value = 0;
  const char* begin = text.data() + position;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  const bool out_of_range = error == std::errc::result_out_of_range;
  if (error != std::errc() && !out_of_range) return -1;
  position += static_cast<std::size_t>(end - begin);
  while (position < text.size() && (text[position] == ' ' || text[position] == '\t')) ++position;
  return out_of_range || value > kMaxGrammarRepetitions ? kMaxGrammarRepetitions + 1L : value;
}

// Of every "{m}", "{m,}" and "{m,n}". What is malformed otherwise is left to the parser.
std::string repetition_problem(std::string_view structure) {
  for (std::size_t open = structure.find('{'); open != std::string_view::npos; open = structure.find('{', open + 1)) {
    std::size_t position = open + 1;
    const long low = read_count(structure, position);
    long high = low;
    if (position < structure.size() && structure[position] == ',') high = read_count(structure, ++position);
    if (low > kMaxGrammarRepetitions || high > kMaxGrammarRepetitions) {
      return fmt::format("it repeats something more than {} times", kMaxGrammarRepetitions);
    }
    if (high >= 0 && high < low) return fmt::format("it repeats something at least {} and at most {} times", low, high);
  }
  return {};
}

const char* skip_blank(const char* text) {
  while (*text != '\0') {
    if (*text == '#') {
      while (*text != '\0' && *text != '\n' && *text != '\r') ++text;
    } else if (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r') {
      ++text;
    } else {
      break;
    }
  }
  return text;
}

// The name of a rule that is referred to but never defined; empty if there is none.
std::string undefined_rule(const llama_grammar_parser& parser) {
  for (const auto& [name, id] : parser.symbol_ids) {
    if (id >= parser.rules.size() || parser.rules[id].empty()) return name;
  }
  return {};
}

}  // namespace

Error unusable_grammar(std::string_view what, std::string_view reason) {
  std::string line(reason.substr(0, reason.find('\n')).substr(0, 200));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return Error(ErrorCode::kUsage, fmt::format("the {} cannot be used: {}", what, line), "Correct it");
}

int deepest_nesting(std::string_view text, std::string_view opening, std::string_view closing) {
  int depth = 0;
  int deepest = 0;
  for (const char c : text) {
    if (opening.find(c) != std::string_view::npos) {
      deepest = std::max(deepest, ++depth);
    } else if (closing.find(c) != std::string_view::npos) {
      depth = std::max(0, depth - 1);
    }
  }
  return deepest;
}

Result<GrammarFacts> check_gbnf(const llama_vocab* vocabulary, const std::string& gbnf) {
  if (gbnf.size() > kMaxGrammarBytes) return unusable_grammar(kWhat, fmt::format("it has {} bytes", gbnf.size()));
  if (gbnf.find('\0') != std::string::npos) return unusable_grammar(kWhat, "it contains a zero byte");
  const std::string structure = structure_of(gbnf);
  if (deepest_nesting(structure, "(", ")") > kMaxGrammarNesting) {
    return unusable_grammar(kWhat, "it is nested too deeply");
  }
  const std::string problem = repetition_problem(structure);
  if (!problem.empty()) return unusable_grammar(kWhat, problem);
  try {
    llama_grammar_parser parser(vocabulary);
    for (const char* position = skip_blank(gbnf.c_str()); *position != '\0';) position = parser.parse_rule(position);
    if (!parser.symbol_ids.contains("root")) return unusable_grammar(kWhat, "it has no rule named 'root'");
    const std::string missing = undefined_rule(parser);
    if (!missing.empty()) return unusable_grammar(kWhat, fmt::format("its rule '{}' is not defined", missing));
    GrammarFacts facts;
    for (const llama_grammar_rule& rule : parser.rules) {
      facts.names_tokens |= std::any_of(rule.begin(), rule.end(), [](const llama_grammar_element& element) {
        return element.type == LLAMA_GRETYPE_TOKEN || element.type == LLAMA_GRETYPE_TOKEN_NOT;
      });
    }
    return facts;
  } catch (const std::exception& exception) {
    return unusable_grammar(kWhat, exception.what());
  }
}

}  // namespace kazeia
