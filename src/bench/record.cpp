#include "bench/record.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bench/record_rules.h"
#include "bench/strict_json.h"

namespace kazeia::bench {
namespace {

constexpr int kForm = 1;  // of this text; a later form has another number
constexpr std::size_t kIdDigits = 12;

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

Result<Figure> figure_from(const Json& value, std::size_t number) {
  KAZEIA_ASSIGN(const JsonObject object,
                JsonObject::of(value, fmt::format("figure {}", number),
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
  KAZEIA_ASSIGN(const JsonObject object, JsonObject::of(value, fmt::format("moment {}", number),
                                                        {"seconds", "load_average", "foreign_cpu", "temperature_c",
                                                         "clock_mhz", "free_memory_bytes", "throttled"}));
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

Status take_identities(const JsonObject& object, Record& record) {
  KAZEIA_ASSIGN(const JsonObject machine,
                JsonObject::of(object.at("machine"), "the machine", {"id", "name", "system"}));
  KAZEIA_TRY(machine.take("id", record.machine.id));
  KAZEIA_TRY(machine.take("name", record.machine.name));
  KAZEIA_TRY(machine.take("system", record.machine.system));
  KAZEIA_ASSIGN(const JsonObject model,
                JsonObject::of(object.at("model"), "the model", {"file", "hash", "architecture", "tensor_bytes"}));
  KAZEIA_TRY(model.take("file", record.model.file));
  KAZEIA_TRY(model.take("hash", record.model.hash));
  KAZEIA_TRY(model.take("architecture", record.model.architecture));
  return model.take("tensor_bytes", record.model.tensor_bytes);
}

Result<Record> record_from(const Json& json) {
  const auto form = json.find("record");
  if (form == json.end()) return bad_json("not a record: it has no \"record\"");
  if (*form != kForm) {
    return Error(ErrorCode::kFile, fmt::format("\"record\" is not {}, the only form this program reads", kForm),
                 "Use the version of kazeia that wrote it");
  }
  KAZEIA_ASSIGN(const JsonObject object,
                JsonObject::of(json, "the record",
                               {"record", "id", "time", "kind", "command", "commit", "dirty", "engine_version",
                                "upstream_version", "compiler", "flags", "machine", "model", "settings", "figures",
                                "moments", "disturbance", "note"}));
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
  KAZEIA_ASSIGN(const Json json, parse_json_object(line));
  KAZEIA_ASSIGN(Record record, record_from(json));
  // Before the rules: whoever changed a figure reads that, not that a median is wrong.
  const std::string id = id_of(record);
  if (record.id != id) {
    return bad_json(fmt::format("\"id\" is \"{}\", but the id of what it says is {}: it was changed", record.id, id));
  }
  KAZEIA_TRY(check_rules(record));
  return record;
}

void seal(Record& record) {
  record.id = id_of(record);
}

}  // namespace kazeia::bench
