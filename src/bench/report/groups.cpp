#include "bench/report/groups.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "bench/comparison.h"

namespace kazeia::bench::report {
namespace {

constexpr std::array<std::string_view, 4> kMainSettings{"threads", "context", "kv", "route"};
// What a baseline's record says besides the settings of both sides.
constexpr std::array<std::string_view, 2> kSettingsOfSides{"baseline", "depth"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Groups with the same key, in the order of their newest record, the newest group first.
template <typename Key>
std::vector<Records> grouped(const Records& records, Key key_of) {
  std::vector<std::pair<decltype(key_of(*records.front())), Records>> groups;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    auto key = key_of(**record);
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (found == groups.end()) found = groups.insert(groups.end(), {std::move(key), {}});
    found->second.push_back(*record);
  }
  std::vector<Records> sorted;
  sorted.reserve(groups.size());
  for (auto& [key, group] : groups) sorted.emplace_back(group.rbegin(), group.rend());
  return sorted;
}

}  // namespace

std::vector<MachineGroup> by_machine(std::span<const Record> records) {
  std::vector<MachineGroup> machines;
  for (const Record& record : records) {
    const std::string anchor = "m-" + record.machine.id;
    auto machine = std::find_if(machines.begin(), machines.end(),
                                [&](const MachineGroup& group) { return group.anchor == anchor; });
    if (machine == machines.end()) machine = machines.insert(machines.end(), {anchor, {}, {}});
    machine->records.push_back(&record);
    const std::string model_anchor = anchor + "-" + (record.model.hash.empty() ? "none" : record.model.hash);
    auto model = std::find_if(machine->models.begin(), machine->models.end(),
                              [&](const ModelGroup& group) { return group.anchor == model_anchor; });
    if (model == machine->models.end()) model = machine->models.insert(machine->models.end(), {model_anchor, {}});
    model->records.push_back(&record);
  }
  for (MachineGroup& machine : machines) {
    std::sort(machine.models.begin(), machine.models.end(), [](const ModelGroup& a, const ModelGroup& b) {
      return std::pair(a.model().file, a.anchor) < std::pair(b.model().file, b.anchor);
    });
  }
  return machines;
}

std::vector<Records> alike(const Records& records, std::initializer_list<std::string_view> kinds) {
  Records chosen;
  std::copy_if(records.begin(), records.end(), std::back_inserter(chosen), [&](const Record* record) {
    return std::find(kinds.begin(), kinds.end(), record->kind) != kinds.end();
  });
  return grouped(chosen, [](const Record& record) { return std::pair(record.kind, record.settings); });
}

std::vector<Records> configurations(const Records& records) {
  Records chosen;
  std::copy_if(records.begin(), records.end(), std::back_inserter(chosen),
               [](const Record* record) { return record->kind == "bench" || record->kind == "baseline"; });
  return grouped(chosen, [](const Record& record) {
    std::map<std::string, std::string> settings = record.settings;
    std::erase_if(settings, [](const auto& entry) { return contains(kSettingsOfSides, entry.first); });
    return settings;
  });
}

const Record* shown(const Records& records) {
  const auto accepted =
      std::find_if(records.rbegin(), records.rend(), [](const Record* record) { return is_accepted(*record); });
  if (accepted != records.rend()) return *accepted;
  return records.empty() ? nullptr : records.back();
}

Records of_kind(const Records& records, std::string_view kind) {
  Records chosen;
  std::copy_if(records.begin(), records.end(), std::back_inserter(chosen),
               [&](const Record* record) { return record->kind == kind; });
  return chosen;
}

std::string setting(const Record& record, const std::string& name) {
  const auto found = record.settings.find(name);
  return found == record.settings.end() ? "" : found->second;
}

std::string main_settings(const Record& record) {
  const std::string threads = setting(record, "threads");
  std::string text;
  const auto add = [&](const std::string& name, const std::string& phrase) {
    if (!setting(record, name).empty()) text += (text.empty() ? "" : ", ") + phrase;
  };
  add("threads", threads + (threads == "1" ? " thread" : " threads"));
  add("context", "context " + setting(record, "context"));
  add("kv", "KV cache " + setting(record, "kv"));
  add("route", "route " + setting(record, "route"));
  return text.empty() ? "settings not told" : text;
}

std::string other_settings(const Record& record) {
  std::string text;
  for (const auto& [name, value] : record.settings) {
    if (contains(kMainSettings, name)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

double length_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  const bool whole = error == std::errc() && end == name.data() + name.size() && !name.empty() && value >= 0;
  return whole ? static_cast<double>(value) : -1;
}

}  // namespace kazeia::bench::report
