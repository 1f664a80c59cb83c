// JSON that is read back as strictly as it is written: exactly the expected fields, once, of the expected types. For
// files that somebody else may have changed.
//
// Errors are kFile and name the field. Sizes are the caller's to limit; depth is limited here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace kazeia::bench {

using Json = nlohmann::ordered_json;

Error bad_json(std::string message);

// An object. Refuses a field that is there twice and anything nested more than 8 deep.
Result<Json> parse_json_object(std::string_view text);

// One object, by which its fields are taken. Refers to the value, which must outlive it.
class JsonObject {
 public:
  // Exactly these fields are in it; `where` names it in errors: "figure 3".
  static Result<JsonObject> of(const Json& value, std::string where, std::initializer_list<std::string_view> fields);

  // A field of those.
  const Json& at(const char* name) const { return *value_.find(name); }
  Status take(const char* name, std::string& into) const;
  Status take(const char* name, bool& into) const;
  Status take(const char* name, double& into) const;
  Status take(const char* name, std::uint64_t& into) const;
  Status take(const char* name, std::vector<std::string>& into) const;
  Status take(const char* name, std::vector<double>& into) const;
  Status take(const char* name, std::map<std::string, std::string>& into) const;
  Status take(const char* name, std::map<std::string, std::uint64_t>& into) const;
  Error wrong(const char* name, const char* expected) const;

 private:
  JsonObject(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json& value_;
  std::string where_;
};

template <typename T>
Status take_all(const JsonObject& object, const char* name, Result<T> (*one)(const Json&, std::size_t),
                std::vector<T>& into) {
  if (!object.at(name).is_array()) return object.wrong(name, "an array");
  for (const Json& entry : object.at(name)) {
    KAZEIA_ASSIGN(T value, one(entry, into.size() + 1));
    into.push_back(std::move(value));
  }
  return {};
}

}  // namespace kazeia::bench
