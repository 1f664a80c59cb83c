// `kazeia ledger`, with records that are made here.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/sample_record.h"
#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using bench::Record;
using bench::sample_figure;
using bench::sample_record;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::vector<double> kDecode{9.6, 9.62, 9.58, 9.61, 9.59};
const std::vector<double> kLoad{800, 804, 796};

// Twice as fast is 2, for decode and for load.
Record record_at(const std::string& time, double speed = 1) {
  std::vector<double> decode = kDecode;
  std::vector<double> load = kLoad;
  for (double& sample : decode) sample *= speed;
  for (double& sample : load) sample /= speed;
  return sample_record({sample_figure("decode_4096", decode), sample_figure("load_ms", load, "ms", false)}, time);
}

const Record kMonday = record_at("2026-11-30T10:00:00Z");
const Record kTuesday = record_at("2026-12-01T10:00:00Z", 1.5);

std::string line_of(const Record& record) {
  return bench::to_json(record) + "\n";
}

class LedgerVerb : public testing::Test {
 protected:
  std::string folder() const { return scratch_.path("ledger"); }
  std::string file() const { return folder() + "/1a2b3c4d.jsonl"; }
  Outcome ledger(std::vector<std::string> words, const std::string& input = "") const {
    words.insert(words.begin(), "ledger");
    words.insert(words.end(), {"--ledger", folder()});
    return run(words, {.input = input});
  }
  void add(const std::string& lines) const {
    const Outcome outcome = ledger({"add", "-"}, lines);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  static void expect_error(const Outcome& outcome, int exit_code, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.all();
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("kazeia: "));
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
  Scratch scratch_;
};

TEST_F(LedgerVerb, AddsWhatAFileOrAPipeBrings) {
  const Outcome first = ledger({"add", scratch_.write("monday.jsonl", line_of(kMonday))});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr(kMonday.id + " is in the ledger of the machine 1a2b3c4d."));
  Record disturbed = record_at("2026-12-02T10:00:00Z");
  disturbed.disturbance = "a backup ran";
  seal(disturbed);
  const Outcome more = ledger({"add", "-"}, line_of(kTuesday) + bench::to_json(disturbed));
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr(disturbed.id + " is in the ledger of the machine 1a2b3c4d, but not accepted"));
  EXPECT_EQ(read_file(file()), line_of(kMonday) + line_of(kTuesday) + line_of(disturbed));
}

TEST_F(LedgerVerb, RefusesWhatIsNoRecordAndNamesTheLine) {
  expect_error(ledger({"add", "-"}, line_of(kMonday) + "{}\n"), 3, "standard input, line 2: ");
  expect_error(ledger({"add", scratch_.write("empty", "")}), 3, "there is no record in");
  expect_error(ledger({"add", scratch_.path("absent")}), 3, "no file at");
  EXPECT_FALSE(std::filesystem::exists(folder()));
  add(line_of(kMonday));
  expect_error(ledger({"add", "-"}, line_of(kTuesday) + line_of(kMonday)), 2, kMonday.id);
  EXPECT_EQ(read_file(file()), line_of(kMonday));
}

TEST_F(LedgerVerb, ListsRecordsByMachineModelAndKind) {
  Record other = record_at("2026-11-30T09:00:00Z");
  other.machine.id = "99999999";
  other.model.file = "another-4b.gguf";
  other.kind = "turns";
  other.commit.clear();
  other.disturbance = "a backup ran";
  seal(other);
  add(line_of(kMonday) + line_of(kTuesday) + line_of(other));
  const Outcome all = ledger({"list"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out,
            "id            time                  kind   machine   commit      model            state\n" + other.id +
                "  2026-11-30T09:00:00Z  turns  99999999  -           another-4b.gguf  disturbed: a backup ran\n" +
                kMonday.id + "  2026-11-30T10:00:00Z  bench  1a2b3c4d  0123456789  model.gguf       accepted\n" +
                kTuesday.id + "  2026-12-01T10:00:00Z  bench  1a2b3c4d  0123456789  model.gguf       accepted\n");
  const auto ids = [&](const std::vector<std::string>& filter) {
    std::vector<std::string> words{"list", "--json"};
    words.insert(words.end(), filter.begin(), filter.end());
    std::vector<std::string> found;
    for (const Json& entry : Json::parse(ledger(words).out, nullptr, false)) found.push_back(entry["id"]);
    return found;
  };
  EXPECT_THAT(ids({}), ElementsAre(other.id, kMonday.id, kTuesday.id));
  EXPECT_THAT(ids({"--machine", "1a2b"}), ElementsAre(kMonday.id, kTuesday.id));
  EXPECT_THAT(ids({"--model", "4b"}), ElementsAre(other.id));
  EXPECT_THAT(ids({"--model", "qwen3", "--kind", "turns"}), ElementsAre(other.id));
  EXPECT_THAT(ids({"--kind", "soak"}), ElementsAre());
  EXPECT_THAT(ledger({"list", "--kind", "soak"}).err, HasSubstr("no such records"));
}

TEST_F(LedgerVerb, ShowsARecordByTheBeginningOfItsId) {
  add(line_of(kMonday));
  const Outcome outcome = ledger({"show", kMonday.id.substr(0, 4)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"command   kazeia bench model.gguf --threads 2\n", "settings  context 4096, threads 2\n",
                           "decode_4096  9.6 tok/s  9.58 to 9.62   0.2 %      5\n",
                           "load_ms      800 ms     796 to 804     0.5 %      3\n",
                           "moments   2 in 30 s; others used at most 2 % of a core; at most 42 °C; throttled\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_EQ(ledger({"show", kMonday.id, "--json"}).out, line_of(kMonday));
  expect_error(ledger({"show", "zz"}), 2, "no record of the ledger begins with 'zz'");
}

TEST_F(LedgerVerb, ComparesTwoRecords) {
  add(line_of(kMonday) + line_of(kTuesday));
  const Outcome outcome = ledger({"compare", kMonday.id, kTuesday.id});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("decode_4096  9.6 tok/s     14.4 tok/s    1.500  1.49"));
  EXPECT_THAT(outcome.out, HasSubstr("  faster\n"));
  const Json json = Json::parse(ledger({"compare", kTuesday.id, kMonday.id, "--json"}).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["before"], kTuesday.id);
  EXPECT_EQ(json["after"], kMonday.id);
  ASSERT_EQ(json["figures"].size(), 2U);
  EXPECT_EQ(json["figures"][1]["name"], "load_ms");
  EXPECT_EQ(json["figures"][1]["verdict"], "slower");
  EXPECT_NEAR(json["figures"][1]["ratio"].get<double>(), 1.5, 1e-9);
  EXPECT_LT(json["figures"][1]["low"].get<double>(), 1.5);
}

TEST_F(LedgerVerb, SaysThatAFigureIsNoResult) {
  Record noisy = kTuesday;
  noisy.figures[0] = sample_figure("decode_4096", {9, 12, 15});
  seal(noisy);
  add(line_of(kMonday) + line_of(noisy));
  const std::string reason = "in " + noisy.id + " it varied by 25.0 %, more than 5 %";
  EXPECT_THAT(ledger({"compare", kMonday.id, noisy.id}).out, HasSubstr("no result: " + reason));
  EXPECT_THAT(ledger({"show", noisy.id}).out, HasSubstr("no result: it varied by 25.0 %"));
  const Json json = Json::parse(ledger({"compare", kMonday.id, noisy.id, "--json"}).out, nullptr, false);
  EXPECT_EQ(json["figures"][0]["verdict"], "no result");
  EXPECT_EQ(json["figures"][0]["reason"], reason);
  EXPECT_TRUE(json["figures"][0]["ratio"].is_null());
}

TEST_F(LedgerVerb, ACheckFailsWithTheFiguresThatBecameWorse) {
  add(line_of(kMonday));
  const Record worse = record_at("2026-12-01T10:00:00Z", 0.9);
  const Outcome outcome = ledger({"check", scratch_.write("worse.jsonl", line_of(worse))});
  expect_error(outcome, 7,
               "worse than " + kMonday.id + " of 2026-11-30T10:00:00Z: decode_4096 by 10.0 %, load_ms by 11.1 %");
  EXPECT_THAT(outcome.out, HasSubstr("slower, a regression"));
  const Outcome as_json = ledger({"check", "-", "--json"}, line_of(worse));
  EXPECT_EQ(as_json.exit_code, 7);
  const Json json = Json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << as_json.out;
  EXPECT_EQ(json["reference"], kMonday.id);
  EXPECT_EQ(json["record"], worse.id);
  EXPECT_EQ(json["passes"], false);
  EXPECT_EQ(json["regressions"], Json({"decode_4096", "load_ms"}));
  EXPECT_EQ(ledger({"check", "-", "--tolerance", "0.2"}, line_of(worse)).exit_code, 0);
  EXPECT_EQ(read_file(file()), line_of(kMonday)) << "a check adds nothing";
}

TEST_F(LedgerVerb, ACheckPassesWhatIsAsGoodOrBetter) {
  add(line_of(kMonday));
  for (const Record& now : {record_at("2026-12-01T10:00:00Z"), record_at("2026-12-01T10:00:00Z", 0.98), kTuesday}) {
    const Outcome outcome = ledger({"check", "-"}, line_of(now));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.all();
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(LedgerVerb, ACheckWithoutAReferenceSaysSo) {
  add(line_of(kMonday));
  // Its own record is no reference, and one with other settings is none.
  Record other = kTuesday;
  other.settings["threads"] = "1";
  seal(other);
  for (const Record& now : {kMonday, other}) {
    const Outcome outcome = ledger({"check", "-"}, line_of(now));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "no accepted record to compare with\n");
  }
  const Json json = Json::parse(ledger({"check", "-", "--json"}, line_of(kMonday)).out, nullptr, false);
  EXPECT_TRUE(json["reference"].is_null());
  EXPECT_EQ(json["regressions"], Json::array());
}

TEST_F(LedgerVerb, ACheckDoesNotPassADisturbedRecord) {
  add(line_of(kMonday));
  Record disturbed = kTuesday;
  disturbed.disturbance = "a backup ran";
  seal(disturbed);
  expect_error(ledger({"check", "-"}, line_of(disturbed)), 7, "was disturbed: a backup ran");
}

TEST_F(LedgerVerb, ACheckOfSeveralRecordsAnswersForEach) {
  add(line_of(kMonday));
  const Record same = record_at("2026-12-02T10:00:00Z");
  const Record worse = record_at("2026-12-03T10:00:00Z", 0.9);
  Record disturbed = kTuesday;
  disturbed.disturbance = "a backup ran";
  seal(disturbed);
  EXPECT_EQ(ledger({"check", "-"}, line_of(same) + line_of(kTuesday)).exit_code, 0);

  const std::string lines = line_of(same) + line_of(worse) + line_of(disturbed);
  const Outcome outcome = ledger({"check", "-"}, lines);
  expect_error(outcome, 7, "2 of 3 records do not pass: " + worse.id + " is worse than " + kMonday.id);
  EXPECT_THAT(outcome.err, HasSubstr("nothing of " + disturbed.id + " could be compared"));
  for (const Record& record : {same, worse, disturbed}) EXPECT_THAT(outcome.out, HasSubstr(record.id));
  const Json json = Json::parse(ledger({"check", "-", "--json"}, lines).out, nullptr, false);
  ASSERT_TRUE(json.is_array() && json.size() == 3);
  EXPECT_EQ(json[0]["passes"], true);
  EXPECT_EQ(json[1]["passes"], false);
  EXPECT_EQ(json[1]["regressions"], Json({"decode_4096", "load_ms"}));
  EXPECT_EQ(json[2]["passes"], false);
}

TEST_F(LedgerVerb, KeepsARecordFromChangedSourcesThatNoCheckRefersTo) {
  Record changed = kMonday;
  changed.dirty = true;
  seal(changed);
  const Outcome outcome = ledger({"add", "-"}, line_of(changed));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr(", but no check refers to it: it was measured with changes that are in no commit."));
  EXPECT_THAT(ledger({"list"}).out, HasSubstr("0123456789+  model.gguf  accepted, no reference\n"));
  EXPECT_EQ(ledger({"check", "-"}, line_of(record_at("2026-12-01T10:00:00Z", 0.5))).out,
            "no accepted record to compare with\n");
}

TEST_F(LedgerVerb, NamesTheDamagedLineWhateverIsAsked) {
  add(line_of(kMonday) + line_of(kTuesday));
  std::string text = read_file(file());
  text[text.rfind("14.4")] = '2';
  std::ofstream(file(), std::ios::binary) << text;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"list"}, {"show", kMonday.id}, {"compare", kMonday.id, kMonday.id}}) {
    expect_error(ledger(words), 3, "1a2b3c4d.jsonl', line 2: ");
  }
  expect_error(ledger({"check", "-"}, line_of(kTuesday)), 3, "line 2: ");
  std::filesystem::remove_all(folder());
  expect_error(ledger({"list"}), 3, "there is no ledger in");
}

TEST_F(LedgerVerb, KeepsItsControlCharactersFromATerminal) {
  Record record = kMonday;
  record.disturbance = "\x1b[31mred";
  seal(record);
  add(line_of(record));
  Terminal terminal({"ledger", "list", "--ledger", folder()});
  EXPECT_TRUE(terminal.wait_for("red"));
  EXPECT_EQ(terminal.wait_for_exit(), 0);
  EXPECT_EQ(terminal.screen().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace kazeia::cli_test
