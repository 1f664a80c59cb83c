#include "bench/record.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/sample_record.h"

namespace kazeia::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

void expect_refused(const std::string& line, const std::string& part) {
  const Result<Record> record = record_from_json(line);
  ASSERT_FALSE(record.ok()) << line;
  EXPECT_EQ(record.error().code(), ErrorCode::kFile);
  EXPECT_THAT(record.error().sentence(), HasSubstr(part)) << line;
}

// With its own id, so that the rule itself has to refuse it.
void expect_broken(Record record, const std::string& part) {
  seal(record);
  expect_refused(to_json(record), part);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Record, ComesBackFromItsLineAsItWas) {
  Record record = sample_record();
  record.dirty = true;
  record.note = "a \"quote\", a\ttab, two\nlines, été";
  record.disturbance = "other processes used 0.8 cores during decode_4096";
  seal(record);
  const std::string line = to_json(record);
  EXPECT_THAT(line, StartsWith(fmt::format(R"({{"record":1,"id":"{}","time":"2026-11-30T23:10:05Z",)", record.id)));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const Result<Record> again = record_from_json(line);
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(*again, record);
  EXPECT_EQ(to_json(*again), line);
}

TEST(Record, KeepsEveryBitOfANumber) {
  const Record record = sample_record({sample_figure("decode_0", {0.1, 1.0 / 3, 9.612345678901234, 1e-300, 3})});
  const Result<Record> again = record_from_json(to_json(record));
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(again->figures, record.figures);
}

TEST(Record, MayBeOfAMachineAloneAndOfNoCommit) {
  Record record = sample_record();
  record.model = {};
  record.commit.clear();
  record.moments.clear();
  record.settings.clear();
  record.upstream_version.clear();
  seal(record);
  const Result<Record> again = record_from_json(to_json(record));
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(*again, record);
}

TEST(Record, FindsItsFigures) {
  const Record record = sample_record();
  ASSERT_NE(record.figure("load_ms"), nullptr);
  EXPECT_EQ(record.figure("load_ms")->unit, "ms");
  EXPECT_EQ(record.figure("load"), nullptr);
}

// Ids are in the ledger and in what refers to it: they must be the same for ever and on every machine.
TEST(Record, HasTheIdThatItAlwaysHad) {
  EXPECT_EQ(sample_record().id, "7acf6372cf78");
}

TEST(Record, HasAnotherIdWhateverIsChanged) {
  const Record record = sample_record();
  Record same = record;
  same.id = "ffffffffffff";
  seal(same);
  EXPECT_EQ(same.id, record.id);
  const std::vector<void (*)(Record&)> changes{[](Record& r) { r.time = "2026-11-30T23:10:06Z"; },
                                               [](Record& r) { r.kind = "soak"; },
                                               [](Record& r) { r.command.emplace_back("--json"); },
                                               [](Record& r) { r.commit.clear(); },
                                               [](Record& r) { r.dirty = true; },
                                               [](Record& r) { r.flags += " -g"; },
                                               [](Record& r) { r.machine.name += "."; },
                                               [](Record& r) { r.model.tensor_bytes["f32"] = 4097; },
                                               [](Record& r) { r.settings.erase("threads"); },
                                               [](Record& r) { r.figures[0].samples[0] += 1e-12; },
                                               [](Record& r) { r.moments[0].throttled = true; },
                                               [](Record& r) { r.note = "on battery"; }};
  for (const auto& change : changes) {
    Record changed = record;
    change(changed);
    seal(changed);
    EXPECT_NE(changed.id, record.id) << to_json(changed);
  }
}

TEST(Record, IsRefusedOnceItWasChanged) {
  expect_refused(replaced(to_json(sample_record()), "9.61", "9.91"), "it was changed");
  Record unsealed = sample_record();
  unsealed.id.clear();
  expect_refused(to_json(unsealed), "\"id\" is \"\"");
}

TEST(Record, IsRefusedWithoutAnyOfItsFieldsOrWithOneMore) {
  const Json whole = Json::parse(to_json(sample_record()));
  for (const char* place : {"", "/machine", "/model", "/figures/0", "/moments/1"}) {
    const Json::json_pointer pointer(place);
    for (const auto& item : whole[pointer].items()) {
      Json without = whole;
      without[pointer].erase(item.key());
      expect_refused(without.dump(), fmt::format("has no \"{}\"", item.key()));
    }
    Json more = whole;
    more[pointer]["speed"] = 1;
    expect_refused(more.dump(), "the unknown field \"speed\"");
  }
}

TEST(Record, IsRefusedIfAFieldHasAnotherType) {
  const Json whole = Json::parse(to_json(sample_record()));
  const Json values = whole.flatten();
  for (const auto& item : values.items()) {
    Json wrong = whole;
    Json& value = wrong[Json::json_pointer(item.key())];
    value = value.is_string() ? Json(1) : Json("1");
    EXPECT_FALSE(record_from_json(wrong.dump()).ok()) << item.key();
  }
  for (const char* place : {"/command", "/machine", "/model", "/settings", "/figures", "/figures/0", "/moments",
                            "/moments/0", "/figures/0/samples", "/model/tensor_bytes"}) {
    Json wrong = whole;
    wrong[Json::json_pointer(place)] = nullptr;
    expect_refused(wrong.dump(), " is not an ");
  }
  for (const Json& bytes : {Json(-1), Json(1.5), Json(true)}) {
    Json wrong = whole;
    wrong["model"]["tensor_bytes"]["f32"] = bytes;
    expect_refused(wrong.dump(), "whole numbers");
  }
}

TEST(Record, IsRefusedIfAFieldIsThereTwice) {
  const std::string line = to_json(sample_record());
  expect_refused(replaced(line, R"("dirty":false)", R"("dirty":false,"dirty":false)"), "\"dirty\" is there twice");
  expect_refused(replaced(line, R"("threads":"2")", R"("threads":"2","threads":"2")"), "\"threads\" is there twice");
}

TEST(Record, IsRefusedIfItIsNoRecordAtAll) {
  const std::string line = to_json(sample_record());
  expect_refused("", "not valid JSON");
  expect_refused(line.substr(0, line.size() - 1), "not valid JSON");
  expect_refused(line + "}", "not valid JSON");
  expect_refused(replaced(line, "qwen3", "qwen\xff"), "not valid JSON");
  expect_refused(replaced(line, "9.61", "1e999"), "not valid JSON");
  expect_refused("[]", "not a JSON object");
  expect_refused("{}", "it has no \"record\"");
  expect_refused(replaced(line, R"("record":1)", R"("record":2)"), "Use the version of kazeia that wrote it");
  expect_refused(std::string(100'000, '['), "nested too deeply");
}

TEST(Record, IsRefusedIfNobodyCouldRepeatIt) {
  const auto broken = [](void (*change)(Record&), const std::string& part) {
    Record record = sample_record();
    change(record);
    expect_broken(record, part);
  };
  for (const char* time :
       {"", "2026-11-30 23:10:05", "2026-11-30T23:10:05", "2026-11-31T23:10:05Z", "2026-13-01T00:00:00Z",
        "2026-11-30T24:00:00Z", "2026-11-30T23:60:05Z", "2026-11-30T23:10:61Z", "2O26-11-30T23:10:05Z"}) {
    Record record = sample_record();
    record.time = time;
    expect_broken(record, "\"time\"");
  }
  broken([](Record& r) { r.kind = "guess"; }, "bench, baseline, routes, soak, turns, tune");
  broken([](Record& r) { r.command.clear(); }, "\"command\"");
  broken([](Record& r) { r.command[0].clear(); }, "\"command\"");
  broken([](Record& r) { r.commit = "main"; }, "\"commit\"");
  broken([](Record& r) { r.engine_version.clear(); }, "\"engine_version\"");
  broken([](Record& r) { r.machine.id = "../../ab"; }, "the machine's \"id\"");
  broken([](Record& r) { r.machine.id = "1A2B3C4D"; }, "the machine's \"id\"");
  broken([](Record& r) { r.model.file = "folder/model.gguf"; }, "a name without folder");
  broken([](Record& r) { r.model.hash.pop_back(); }, "32 hexadecimal digits");
  broken([](Record& r) { r.model.file.clear(); }, "32 hexadecimal digits");
  broken([](Record& r) { r.model.tensor_bytes[""] = 1; }, "has no name");
  broken([](Record& r) { r.settings[""] = "1"; }, "has no name");
}

TEST(Record, IsRefusedIfItsFiguresAreNotThoseOfItsSamples) {
  const auto broken = [](void (*change)(Figure&), const std::string& part) {
    Record record = sample_record();
    change(record.figures[0]);
    expect_broken(record, part);
  };
  broken([](Figure& f) { f.name = "decode 4096"; }, "cannot be the name");
  broken([](Figure& f) { f.name.clear(); }, "cannot be the name");
  broken([](Figure& f) { f.unit = "\x1b[31m"; }, "unit");
  broken([](Figure& f) { f.samples.clear(); }, "has no samples");
  broken([](Figure& f) { f.samples[0] = std::numeric_limits<double>::quiet_NaN(); }, "numbers");
  broken([](Figure& f) { f.median += 0.01; }, "the median of its samples is");
  broken([](Figure& f) { f.variation = 0; }, "the variation of its samples is");
  broken([](Figure& f) { f.low = f.median + 0.001; }, "no interval");
  broken([](Figure& f) { f.high = 100; }, "no interval");
  Record twice = sample_record();
  twice.figures[1].name = twice.figures[0].name;
  expect_broken(twice, "two figures \"decode_4096\"");
  Record nothing = sample_record();
  nothing.figures.clear();
  expect_broken(nothing, "nothing was measured");
}

TEST(Record, IsRefusedIfItsMomentsCannotHaveBeen) {
  const auto broken = [](void (*change)(MachineMoment&), const std::string& part) {
    Record record = sample_record();
    change(record.moments[1]);
    expect_broken(record, part);
  };
  broken([](MachineMoment& m) { m.seconds = 0.25; }, "moment 2: its \"seconds\"");
  broken([](MachineMoment& m) { m.load_average = -1; }, "\"load_average\"");
  broken([](MachineMoment& m) { m.foreign_cpu = -0.1; }, "\"foreign_cpu\"");
  broken([](MachineMoment& m) { m.clock_mhz = -1; }, "\"clock_mhz\"");
  broken([](MachineMoment& m) { m.temperature_c = -300; }, "\"temperature_c\"");
}

TEST(Record, WritesTextThatIsNotUtf8AsTextThatIs) {
  Record record = sample_record();
  record.note = "broken \xff byte";
  seal(record);
  const Result<Record> again = record_from_json(to_json(record));
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(again->note, "broken \xEF\xBF\xBD byte");
  EXPECT_EQ(again->id, record.id);
}

}  // namespace
}  // namespace kazeia::bench
