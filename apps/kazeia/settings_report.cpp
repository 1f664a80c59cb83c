#include "settings_report.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_decision(std::string_view record) {
  return record.size() == 4;
}

std::string record_name(std::string_view record) {
  return fmt::format("{} {}", is_decision(record) ? "decision" : "record", record);
}

std::string gain_text(const bench::TunedChoice& choice) {
  return fmt::format("{} {:.3f} times as good ({:.3f} to {:.3f})", choice.figure, choice.gain.median, choice.gain.low,
                     choice.gain.high);
}

// The NPU's own profile may hold another width than the built-in one.
bool is_from_npu_profile(const SettingInForce& setting) {
  return setting.setting->name == "npu_min_width" && setting.origin == Origin::kBuiltIn &&
         setting.value != setting.setting->value;
}

std::string built_in_text(const SettingInForce& in_force) {
  const plan::Setting& setting = *in_force.setting;
  if (is_from_npu_profile(in_force)) return "measured on this NPU by `kazeia doctor --npu --save`; built-in is 32";
  std::string text = setting.record.empty()
                         ? fmt::format("built-in, unmeasured: {}", setting.reason)
                         : fmt::format("built-in, {}: {}", record_name(setting.record), setting.reason);
  if (in_force.tuned)
    text += fmt::format("; tuned was {}, which does not go with what was asked for", in_force.tuned->value);
  return text;
}

std::string where_from(const SettingInForce& in_force) {
  const plan::Setting& setting = *in_force.setting;
  switch (in_force.origin) {
    case Origin::kBuiltIn:
      return built_in_text(in_force);
    case Origin::kTuned:
      return fmt::format("tuned, record {}: {}; built-in was {}", in_force.tuned->record, gain_text(*in_force.tuned),
                         in_force.tuned->instead);
    case Origin::kAsked:
      return in_force.tuned ? fmt::format("asked for; overrules {}, tuned by record {}", in_force.tuned->value,
                                          in_force.tuned->record)
                            : fmt::format("asked for; built-in is {}", setting.value);
  }
  return {};
}

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kBuiltIn:
      return "built-in";
    case Origin::kTuned:
      return "tuned";
    case Origin::kAsked:
      return "asked";
  }
  return "unknown";
}

Json settings_json(const ResolvedSettings& resolved) {
  Json json = Json::object();
  for (const SettingInForce& in_force : resolved.settings) {
    json[std::string(in_force.setting->name)] = {{"value", in_force.value}, {"from", origin_name(in_force.origin)}};
  }
  return json;
}

std::string settings_line(const ResolvedSettings& resolved) {
  std::string line;
  for (const SettingInForce& in_force : resolved.settings) {
    if (in_force.origin == Origin::kBuiltIn) continue;
    line += fmt::format("{}{} {} ({})", line.empty() ? "" : ", ", in_force.setting->name, in_force.value,
                        origin_name(in_force.origin));
  }
  return line.empty() ? "built-in" : line;
}

std::string why_table(std::span<const SettingInForce> settings) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const SettingInForce& in_force : settings) {
    name_width = std::max(name_width, in_force.setting->name.size());
    value_width = std::max(value_width, in_force.value.size());
  }
  std::string text;
  for (const SettingInForce& in_force : settings) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", in_force.setting->name, name_width, in_force.value, value_width,
                        where_from(in_force));
  }
  return text;
}

std::string why_sentences(const SettingInForce& in_force, std::string_view evidence) {
  const plan::Setting& setting = *in_force.setting;
  std::string text = fmt::format("{} is {}: {}.\n", setting.name, in_force.value, setting.meaning);
  text += setting.record.empty()
              ? fmt::format("Its built-in default, {}, is unmeasured: {}.\n", setting.value, setting.reason)
              : fmt::format("Its built-in default, {}, rests on {}: {}.\n", setting.value, record_name(setting.record),
                            setting.reason);
  if (is_decision(setting.record)) {
    text += fmt::format("That is a file of docs/decisions, with the command that measures it again.\n");
  }
  if (is_from_npu_profile(in_force)) {
    text += fmt::format("On this device `kazeia doctor --npu --save` measured {}, which is used instead.\n",
                        in_force.value);
  }
  if (in_force.tuned) {
    const bench::TunedChoice& choice = *in_force.tuned;
    text += fmt::format(
        "`kazeia tune` compared it on this machine and with this model: {} instead of {} makes {}, by record {}.\n",
        choice.value, choice.instead, gain_text(choice), choice.record);
    if (!evidence.empty()) text += fmt::format("{}\n", evidence);
    if (in_force.origin == Origin::kBuiltIn) text += "It is left out: it does not go with what was asked for.\n";
  }
  if (in_force.origin == Origin::kAsked) {
    text += fmt::format("You asked for {}{}.\n", in_force.value, in_force.tuned ? ", which counts more" : "");
  } else {
    text += fmt::format("{} gives another value{}.\n", setting.flag,
                        setting.changes_answers ? "; answers may then differ" : "");
  }
  return text;
}

Json why_json(std::span<const SettingInForce> settings) {
  Json list = Json::array();
  for (const SettingInForce& in_force : settings) {
    const plan::Setting& setting = *in_force.setting;
    Json json = {{"setting", setting.name},
                 {"value", in_force.value},
                 {"from", origin_name(in_force.origin)},
                 {"meaning", setting.meaning},
                 {"flag", setting.flag},
                 {"default", setting.value},
                 {"record", setting.record.empty() ? Json(nullptr) : Json(setting.record)},
                 {"measured", !setting.record.empty()},
                 {"reason", setting.reason},
                 {"changes_answers", setting.changes_answers},
                 {"tuned", nullptr}};
    if (in_force.tuned) {
      const bench::TunedChoice& choice = *in_force.tuned;
      json["tuned"] = {
          {"value", choice.value},
          {"instead", choice.instead},
          {"record", choice.record},
          {"figure", choice.figure},
          {"gain", {{"median", choice.gain.median}, {"low", choice.gain.low}, {"high", choice.gain.high}}}};
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace kazeia::cli
