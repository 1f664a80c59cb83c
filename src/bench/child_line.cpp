#include "bench/child_line.h"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace kazeia::bench {
namespace {

using Json = nlohmann::ordered_json;

void tell(const Json& object) {
  const std::string line = object.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

bool has_text(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string();
}

}  // namespace

std::optional<ChildLine> parse_child_line(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  ChildLine line;
  if (has_text(object, "begin")) {
    line.kind = ChildLine::Kind::kBegin;
    line.name = object["begin"].get<std::string>();
    if (object.contains("tokens") && object["tokens"].is_number_integer()) {
      line.tokens = object["tokens"].get<std::int64_t>();
    }
    return line;
  }
  if (has_text(object, "name") && object.contains("value") && object["value"].is_number()) {
    line.kind = ChildLine::Kind::kSample;
    line.name = object["name"].get<std::string>();
    line.value = object["value"].get<double>();
    return line;
  }
  if (has_text(object, "fact") && has_text(object, "text")) {
    line.kind = ChildLine::Kind::kFact;
    line.name = object["fact"].get<std::string>();
    line.text = object["text"].get<std::string>();
    return line;
  }
  return std::nullopt;
}

void tell_begin(const std::string& name, std::int64_t tokens) {
  tell({{"begin", name}, {"tokens", tokens}});
}

void tell_sample(const std::string& name, double value) {
  tell({{"name", name}, {"value", value}});
}

void tell_fact(const std::string& name, const std::string& text) {
  tell({{"fact", name}, {"text", text}});
}

}  // namespace kazeia::bench
