#include "engine/json_schema.h"

#include <exception>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "engine/gbnf.h"
#include "json-schema-to-grammar.h"
#include "json-schema.h"

namespace kazeia {
namespace {

constexpr std::string_view kWhat = "JSON schema";

std::string without_strings(std::string_view json) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (in_string && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      out += json[i];
    }
  }
  return out;
}

void collect_patterns(const common_chat_schema* node, std::vector<std::string>& patterns) {
  if (node == nullptr) return;
  const auto collect_all = [&](const auto& children) {
    for (const common_chat_schema_ptr& child : children) collect_patterns(child.get(), patterns);
  };
  switch (node->kind()) {
    case common_chat_schema::KIND_STRING: {
      const auto& text = static_cast<const common_chat_schema_string&>(*node);
      if (!text.pattern.empty()) patterns.push_back(text.pattern);
      break;
    }
    case common_chat_schema::KIND_ANY_OF:
      collect_all(static_cast<const common_chat_schema_any_of&>(*node).children);
      break;
    case common_chat_schema::KIND_ALL_OF:
      collect_all(static_cast<const common_chat_schema_all_of&>(*node).children);
      break;
    case common_chat_schema::KIND_TUPLE:
      collect_all(static_cast<const common_chat_schema_tuple&>(*node).items);
      break;
    case common_chat_schema::KIND_ARRAY:
      collect_patterns(static_cast<const common_chat_schema_array&>(*node).items.get(), patterns);
      break;
    case common_chat_schema::KIND_OBJECT: {
      const auto& object = static_cast<const common_chat_schema_object&>(*node);
      for (const common_chat_schema_property& property : object.properties) {
        collect_patterns(property.schema.get(), patterns);
      }
      collect_patterns(object.additional_properties.get(), patterns);
      break;
    }
    default:
      break;  // no schema inside; a reference's target is visited by itself
  }
}

std::string grammar_of_string(const std::string& pattern) {
  common_chat_schema_document document;
  auto text = std::make_unique<common_chat_schema_string>();
  text->pattern = pattern;
  document.root = std::move(text);
  return json_schema_to_grammar(document);
}

// A regular expression without an equivalent is replaced by "any string", with a warning on stderr only.
std::string ignored_pattern(const common_chat_schema_document& document) {
  std::vector<std::string> patterns;
  collect_patterns(document.root.get(), patterns);
  for (const auto& [name, schema] : document.refs) collect_patterns(schema.get(), patterns);
  if (patterns.empty()) return {};
  const std::string any_string = grammar_of_string("");
  for (const std::string& pattern : patterns) {
    // Asked before the converter is, because it prints.
    const bool anchored = pattern.size() >= 2 && pattern.front() == '^' && pattern.back() == '$';
    if (!anchored || grammar_of_string(pattern) == any_string) return pattern;
  }
  return {};
}

}  // namespace

Result<std::string> gbnf_from_json_schema(const std::string& json_schema) {
  if (json_schema.size() > kMaxGrammarBytes) {
    return unusable_grammar(kWhat, fmt::format("it has {} bytes", json_schema.size()));
  }
  // Parentheses are those of regular expressions.
  if (deepest_nesting(without_strings(json_schema), "{[", "}]") > kMaxGrammarNesting ||
      deepest_nesting(json_schema, "(", ")") > kMaxGrammarNesting) {
    return unusable_grammar(kWhat, "it is nested too deeply");
  }
  try {
    const common_chat_schema_document document = common_chat_schema_from_json(common_json::parse(json_schema));
    const std::string ignored = ignored_pattern(document);
    if (!ignored.empty()) {
      return unusable_grammar(kWhat, fmt::format("the pattern '{}' is not supported, it must be a simple regular "
                                                 "expression between ^ and $",
                                                 ignored));
    }
    return json_schema_to_grammar(document);
  } catch (const std::exception& exception) {
    return unusable_grammar(kWhat, exception.what());
  }
}

}  // namespace kazeia
