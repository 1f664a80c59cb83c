#include "plan/settings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>

namespace kazeia::plan {
namespace {

namespace fs = std::filesystem;

const fs::path kSources = KAZEIA_SOURCES;

// Defaults that nobody has measured yet. A line may be removed, with a record; none may be added: a new setting comes
// with the measurement that chose its default.
constexpr std::array<std::string_view, 10> kUnmeasured = {
    "prefill_threads", "decode_threads", "cores",         "poll",    "ubatch",   "kv",
    "huge_pages",      "route",          "npu_min_width", "context"};

bool is_decision(std::string_view record) {
  return record.size() == 4 && record.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_in_decisions(std::string_view number) {
  for (const auto& entry : fs::directory_iterator(kSources / "docs" / "decisions")) {
    if (entry.path().filename().string().starts_with(std::string(number) + "-")) return true;
  }
  return false;
}

bool is_in_ledger(std::string_view id) {
  for (const auto& entry : fs::directory_iterator(kSources / "ledger")) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.find("\"id\":\"" + std::string(id) + "\"") != std::string::npos) return true;
    }
  }
  return false;
}

TEST(Settings, WithoutARecordAreTheseAndNoOthers) {
  for (const Setting& setting : settings()) {
    if (!setting.record.empty()) continue;
    EXPECT_NE(std::find(kUnmeasured.begin(), kUnmeasured.end(), setting.name), kUnmeasured.end())
        << setting.name << " has no record: measure its default, and name the record";
  }
  // One that has got a record, or that is gone, leaves the list.
  for (const std::string_view name : kUnmeasured) {
    const Setting* setting = find_setting(name);
    ASSERT_NE(setting, nullptr) << name;
    EXPECT_EQ(setting->record, "") << name << " is measured now: take it off the list";
  }
}

TEST(Settings, NameARecordThatThereIs) {
  for (const Setting& setting : settings()) {
    if (setting.record.empty()) continue;
    const bool there = is_decision(setting.record) ? is_in_decisions(setting.record) : is_in_ledger(setting.record);
    EXPECT_TRUE(there) << setting.name << ": " << setting.record;
  }
}

TEST(Settings, SayWhatTheyAreAndWhyTheyAreSo) {
  std::set<std::string_view> names;
  std::set<std::string_view> flags;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    EXPECT_NE(setting.meaning, "") << setting.name;
    EXPECT_NE(setting.value, "") << setting.name;
    EXPECT_NE(setting.reason, "") << setting.name;
    EXPECT_EQ(setting.reason.back() == '.', false) << setting.name;
    EXPECT_EQ(find_setting(setting.name), &setting);
  }
  EXPECT_EQ(find_setting("moon_phase"), nullptr);
}

}  // namespace
}  // namespace kazeia::plan
