#include "bench/record.h"

#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bench/record_rules.h"

namespace kazeia::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kForm = 1;  // of this text; a later form has another number
constexpr std::size_t kIdDigits = 12;
constexpr int kDeepest = 8;

Error bad(std::string message) {
  return Error(ErrorCode::kFile, std::move(message), "Use a line that kazeia wrote, unchanged");
}

// ---- writing

Json to_value(const Figure& figure) {
  return {{"name", figure.name},       {"unit", figure.unit},          {"higher_is_better", figure.higher_is_better},
          {"samples", figure.samples}, {"median", figure.median},      {"low", figure.low},
          {"high", figure.high},       {"variation", figure.variation}};
}

Json to_value(const MachineMoment& moment) {
  return {{"seconds", moment.seconds},         {"load_average", moment.load_average},
          {"foreign_cpu", moment.foreign_cpu}, {"temperature_c", moment.temperature_c},
          {"clock_mhz", moment.clock_mhz},     {"free_memory_bytes", moment.free_memory_bytes},
          {"throttled", moment.throttled}};
}

template <typename T>
Json to_array(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(to_value(value));
  return array;
}

template <typename T>
Json to_object(const std::map<std::string, T>& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

std::string canonical(const Record& record, const std::optional<std::string>& id) {
  Json json = {{"record", kForm}};
  if (id) json["id"] = *id;
  json["time"] = record.time;
  json["kind"] = record.kind;
  json["command"] = record.command;
  json["commit"] = record.commit;
  json["dirty"] = record.dirty;
  json["engine_version"] = record.engine_version;
  json["upstream_version"] = record.upstream_version;
  json["compiler"] = record.compiler;
  json["flags"] = record.flags;
  json["machine"] = {{"id", record.machine.id}, {"name", record.machine.name}, {"system", record.machine.system}};
  json["model"] = {{"file", record.model.file},
                   {"hash", record.model.hash},
                   {"architecture", record.model.architecture},
                   {"tensor_bytes", to_object(record.model.tensor_bytes)}};
  json["settings"] = to_object(record.settings);
  json["figures"] = to_array(record.figures);
  json["moments"] = to_array(record.moments);
  json["disturbance"] = record.disturbance;
  json["note"] = record.note;
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string id_of(const Record& record) {
  const std::string text = canonical(record, std::nullopt);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64).substr(0, kIdDigits);
}

// ---- reading

// A field that is there twice would be one of the two by chance, and a deep value would be read by recursion.
Result<Json> parse(std::string_view text) {
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
  if (!problem.empty()) return bad(problem);
  if (value.is_discarded()) return bad("not valid JSON");
  if (!value.is_object()) return bad("not a JSON object");
  return value;
}

// One object, by which its fields are taken: exactly the expected ones are in it.
class Object {
 public:
  static Result<Object> of(const Json& value, std::string where, std::initializer_list<std::string_view> fields) {
    if (!value.is_object()) return bad(where + " is not an object");
    for (const std::string_view name : fields) {
      if (!value.contains(name)) return bad(fmt::format("{} has no \"{}\"", where, name));
    }
    for (const auto& item : value.items()) {
      bool known = false;
      for (const std::string_view name : fields) known = known || item.key() == name;
      if (!known) return bad(fmt::format("{} has the unknown field \"{}\"", where, item.key()));
    }
    return Object(value, std::move(where));
  }

  const Json& at(const char* name) const { return *value_.find(name); }
  Status take(const char* name, std::string& into) const {
    if (!at(name).is_string()) return wrong(name, "a string");
    into = at(name).get<std::string>();
    return {};
  }
  Status take(const char* name, bool& into) const {
    if (!at(name).is_boolean()) return wrong(name, "true or false");
    into = at(name).get<bool>();
    return {};
  }
  Status take(const char* name, double& into) const {
    if (!at(name).is_number()) return wrong(name, "a number");
    into = at(name).get<double>();
    return {};
  }
  Status take(const char* name, std::uint64_t& into) const {
    if (!at(name).is_number_unsigned()) return wrong(name, "a whole number from 0 on");
    into = at(name).get<std::uint64_t>();
    return {};
  }
  Status take(const char* name, std::vector<std::string>& into) const {
    if (!at(name).is_array()) return wrong(name, "an array of strings");
    for (const Json& entry : at(name)) {
      if (!entry.is_string()) return wrong(name, "an array of strings");
      into.push_back(entry.get<std::string>());
    }
    return {};
  }
  Status take(const char* name, std::vector<double>& into) const {
    if (!at(name).is_array()) return wrong(name, "an array of numbers");
    for (const Json& entry : at(name)) {
      if (!entry.is_number()) return wrong(name, "an array of numbers");
      into.push_back(entry.get<double>());
    }
    return {};
  }
  Status take(const char* name, std::map<std::string, std::string>& into) const {
    if (!at(name).is_object()) return wrong(name, "an object of strings");
    for (const auto& item : at(name).items()) {
      if (!item.value().is_string()) return wrong(name, "an object of strings");
      into[item.key()] = item.value().get<std::string>();
    }
    return {};
  }
  Status take(const char* name, std::map<std::string, std::uint64_t>& into) const {
    if (!at(name).is_object()) return wrong(name, "an object of whole numbers");
    for (const auto& item : at(name).items()) {
      if (!item.value().is_number_unsigned()) return wrong(name, "an object of whole numbers");
      into[item.key()] = item.value().get<std::uint64_t>();
    }
    return {};
  }
  Error wrong(const char* name, const char* expected) const {
    return bad(fmt::format("{}: \"{}\" is not {}", where_, name, expected));
  }

 private:
  Object(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json& value_;
  std::string where_;
};

Result<Figure> figure_from(const Json& value, std::size_t number) {
  KAZEIA_ASSIGN(const Object object,
                Object::of(value, fmt::format("figure {}", number),
                           {"name", "unit", "higher_is_better", "samples", "median", "low", "high", "variation"}));
  Figure figure;
  KAZEIA_TRY(object.take("name", figure.name));
  KAZEIA_TRY(object.take("unit", figure.unit));
  KAZEIA_TRY(object.take("higher_is_better", figure.higher_is_better));
  KAZEIA_TRY(object.take("samples", figure.samples));
  KAZEIA_TRY(object.take("median", figure.median));
  KAZEIA_TRY(object.take("low", figure.low));
  KAZEIA_TRY(object.take("high", figure.high));
  KAZEIA_TRY(object.take("variation", figure.variation));
  return figure;
}

Result<MachineMoment> moment_from(const Json& value, std::size_t number) {
  KAZEIA_ASSIGN(const Object object, Object::of(value, fmt::format("moment {}", number),
                                                {"seconds", "load_average", "foreign_cpu", "temperature_c", "clock_mhz",
                                                 "free_memory_bytes", "throttled"}));
  MachineMoment moment;
  KAZEIA_TRY(object.take("seconds", moment.seconds));
  KAZEIA_TRY(object.take("load_average", moment.load_average));
  KAZEIA_TRY(object.take("foreign_cpu", moment.foreign_cpu));
  KAZEIA_TRY(object.take("temperature_c", moment.temperature_c));
  KAZEIA_TRY(object.take("clock_mhz", moment.clock_mhz));
  KAZEIA_TRY(object.take("free_memory_bytes", moment.free_memory_bytes));
  KAZEIA_TRY(object.take("throttled", moment.throttled));
  return moment;
}

template <typename T>
Status take_all(const Object& object, const char* name, Result<T> (*one)(const Json&, std::size_t),
                std::vector<T>& into) {
  if (!object.at(name).is_array()) return object.wrong(name, "an array");
  for (const Json& entry : object.at(name)) {
    KAZEIA_ASSIGN(T value, one(entry, into.size() + 1));
    into.push_back(std::move(value));
  }
  return {};
}

Status take_identities(const Object& object, Record& record) {
  KAZEIA_ASSIGN(const Object machine, Object::of(object.at("machine"), "the machine", {"id", "name", "system"}));
  KAZEIA_TRY(machine.take("id", record.machine.id));
  KAZEIA_TRY(machine.take("name", record.machine.name));
  KAZEIA_TRY(machine.take("system", record.machine.system));
  KAZEIA_ASSIGN(const Object model,
                Object::of(object.at("model"), "the model", {"file", "hash", "architecture", "tensor_bytes"}));
  KAZEIA_TRY(model.take("file", record.model.file));
  KAZEIA_TRY(model.take("hash", record.model.hash));
  KAZEIA_TRY(model.take("architecture", record.model.architecture));
  return model.take("tensor_bytes", record.model.tensor_bytes);
}

Result<Record> record_from(const Json& json) {
  const auto form = json.find("record");
  if (form == json.end()) return bad("not a record: it has no \"record\"");
  if (*form != kForm) {
    return Error(ErrorCode::kFile, fmt::format("\"record\" is not {}, the only form this program reads", kForm),
                 "Use the version of kazeia that wrote it");
  }
  KAZEIA_ASSIGN(const Object object, Object::of(json, "the record",
                                                {"record", "id", "time", "kind", "command", "commit", "dirty",
                                                 "engine_version", "upstream_version", "compiler", "flags", "machine",
                                                 "model", "settings", "figures", "moments", "disturbance", "note"}));
  Record record;
  KAZEIA_TRY(object.take("id", record.id));
  KAZEIA_TRY(object.take("time", record.time));
  KAZEIA_TRY(object.take("kind", record.kind));
  KAZEIA_TRY(object.take("command", record.command));
  KAZEIA_TRY(object.take("commit", record.commit));
  KAZEIA_TRY(object.take("dirty", record.dirty));
  KAZEIA_TRY(object.take("engine_version", record.engine_version));
  KAZEIA_TRY(object.take("upstream_version", record.upstream_version));
  KAZEIA_TRY(object.take("compiler", record.compiler));
  KAZEIA_TRY(object.take("flags", record.flags));
  KAZEIA_TRY(take_identities(object, record));
  KAZEIA_TRY(object.take("settings", record.settings));
  KAZEIA_TRY(take_all(object, "figures", figure_from, record.figures));
  KAZEIA_TRY(take_all(object, "moments", moment_from, record.moments));
  KAZEIA_TRY(object.take("disturbance", record.disturbance));
  KAZEIA_TRY(object.take("note", record.note));
  return record;
}

}  // namespace

const Figure* Record::figure(std::string_view name) const {
  for (const Figure& figure : figures) {
    if (figure.name == name) return &figure;
  }
  return nullptr;
}

std::string to_json(const Record& record) {
  return canonical(record, record.id);
}

Result<Record> record_from_json(std::string_view line) {
  KAZEIA_ASSIGN(const Json json, parse(line));
  KAZEIA_ASSIGN(Record record, record_from(json));
  // Before the rules: whoever changed a figure reads that, not that a median is wrong.
  const std::string id = id_of(record);
  if (record.id != id) {
    return bad(fmt::format("\"id\" is \"{}\", but the id of what it says is {}: it was changed", record.id, id));
  }
  KAZEIA_TRY(check_rules(record));
  return record;
}

void seal(Record& record) {
  record.id = id_of(record);
}

}  // namespace kazeia::bench
