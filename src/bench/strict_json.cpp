#include "bench/strict_json.h"

#include <set>

#include <fmt/format.h>

namespace kazeia::bench {
namespace {

constexpr int kDeepest = 8;

}  // namespace

Error bad_json(std::string message) {
  return Error(ErrorCode::kFile, std::move(message), "Use a text that kazeia wrote, unchanged");
}

// A field that is there twice would be one of the two by chance, and a deep value would be read by recursion.
Result<Json> parse_json_object(std::string_view text) {
  std::vector<std::set<std::string>> open;
  std::string problem;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (!problem.empty()) return false;
    if (depth > kDeepest) problem = "it is nested too deeply";
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      problem = fmt::format("the field \"{}\" is there twice", parsed.get<std::string>());
    }
    return problem.empty();
  };
  Json value = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!problem.empty()) return bad_json(problem);
  if (value.is_discarded()) return bad_json("not valid JSON");
  if (!value.is_object()) return bad_json("not a JSON object");
  return value;
}

Result<JsonObject> JsonObject::of(const Json& value, std::string where,
                                  std::initializer_list<std::string_view> fields) {
  if (!value.is_object()) return bad_json(where + " is not an object");
  for (const std::string_view name : fields) {
    if (!value.contains(name)) return bad_json(fmt::format("{} has no \"{}\"", where, name));
  }
  for (const auto& item : value.items()) {
    bool known = false;
    for (const std::string_view name : fields) known = known || item.key() == name;
    if (!known) return bad_json(fmt::format("{} has the unknown field \"{}\"", where, item.key()));
  }
  return JsonObject(value, std::move(where));
}

Status JsonObject::take(const char* name, std::string& into) const {
  if (!at(name).is_string()) return wrong(name, "a string");
  into = at(name).get<std::string>();
  return {};
}

Status JsonObject::take(const char* name, bool& into) const {
  if (!at(name).is_boolean()) return wrong(name, "true or false");
  into = at(name).get<bool>();
  return {};
}

Status JsonObject::take(const char* name, double& into) const {
  if (!at(name).is_number()) return wrong(name, "a number");
  into = at(name).get<double>();
  return {};
}

Status JsonObject::take(const char* name, std::uint64_t& into) const {
  if (!at(name).is_number_unsigned()) return wrong(name, "a whole number from 0 on");
  into = at(name).get<std::uint64_t>();
  return {};
}

Status JsonObject::take(const char* name, std::vector<std::string>& into) const {
  if (!at(name).is_array()) return wrong(name, "an array of strings");
  for (const Json& entry : at(name)) {
    if (!entry.is_string()) return wrong(name, "an array of strings");
    into.push_back(entry.get<std::string>());
  }
  return {};
}

Status JsonObject::take(const char* name, std::vector<double>& into) const {
  if (!at(name).is_array()) return wrong(name, "an array of numbers");
  for (const Json& entry : at(name)) {
    if (!entry.is_number()) return wrong(name, "an array of numbers");
    into.push_back(entry.get<double>());
  }
  return {};
}

Status JsonObject::take(const char* name, std::map<std::string, std::string>& into) const {
  if (!at(name).is_object()) return wrong(name, "an object of strings");
  for (const auto& item : at(name).items()) {
    if (!item.value().is_string()) return wrong(name, "an object of strings");
    into[item.key()] = item.value().get<std::string>();
  }
  return {};
}

Status JsonObject::take(const char* name, std::map<std::string, std::uint64_t>& into) const {
  if (!at(name).is_object()) return wrong(name, "an object of whole numbers");
  for (const auto& item : at(name).items()) {
    if (!item.value().is_number_unsigned()) return wrong(name, "an object of whole numbers");
    into[item.key()] = item.value().get<std::uint64_t>();
  }
  return {};
}

Error JsonObject::wrong(const char* name, const char* expected) const {
  return bad_json(fmt::format("{}: \"{}\" is not {}", where_, name, expected));
}

}  // namespace kazeia::bench
