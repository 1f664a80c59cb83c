// `kazeia turns`, with few and short turns. What it measures is not looked at: only that it measured the right thing.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr std::size_t kNewTokens = 60;
// The template's own tokens around a message: what a turn reads besides.
constexpr std::size_t kAround = 16;

std::vector<std::string> turns(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{
      "turns", model_path(model), "--turns", "4",         "--new-tokens", "60", "--answer-tokens",
      "12",    "--threads",       "1",       "--context", "1024"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Conditions temporary_files_in(const std::string& folder) {
  Conditions conditions;
  conditions.environment.push_back("TMPDIR=" + folder);
  return conditions;
}

// A run with --json, in a temporary folder that is empty afterwards.
Json measured(const std::string& model, const std::vector<std::string>& more = {}) {
  const Scratch scratch;
  std::vector<std::string> arguments = turns(model, more);
  arguments.emplace_back("--json");
  const Outcome outcome = run(arguments, temporary_files_in(scratch.path("")));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(scratch.names(), IsEmpty());
  return Json::parse(outcome.out, nullptr, false);
}

void expect_figures(const Json& object, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    ASSERT_TRUE(object.contains(name)) << name;
    EXPECT_TRUE(object[name].is_number()) << name;
  }
}

const std::vector<std::string> kTurnFigures{"prompt_tokens", "reused_tokens",     "read_tokens",     "ttft_ms",
                                            "idle_ms",       "read_ahead_tokens", "generated_tokens"};

// Only what was said is read while somebody waits, and the message has the length that was asked for.
void expect_the_message_alone(const Json& turn) {
  EXPECT_GT(turn["reused_tokens"], 0U);
  EXPECT_LE(turn["read_tokens"], kNewTokens + kAround);
  EXPECT_GE(turn["read_tokens"], kNewTokens - 4);
}

class TurnsVerb : public testing::TestWithParam<std::string> {};

TEST_P(TurnsVerb, ReadsOnlyTheMessageInEveryTurnAndAfterARestart) {
  const Json json = measured(GetParam());
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["turns"].size(), 4U);
  std::size_t prompt = 0;
  for (const Json& turn : json["turns"]) {
    expect_figures(turn, kTurnFigures);
    EXPECT_EQ(turn["read_tokens"].get<std::size_t>() + turn["reused_tokens"].get<std::size_t>(), turn["prompt_tokens"]);
    EXPECT_GE(turn["prompt_tokens"], prompt + kNewTokens);
    // The answer that stays is the scripted one: it is read in the idle time.
    EXPECT_GE(turn["read_ahead_tokens"], 12U - 4);
    EXPECT_LE(turn["read_ahead_tokens"], 12U + kAround);
    prompt = turn["prompt_tokens"];
  }
  EXPECT_EQ(json["turns"][0]["reused_tokens"], 0U);
  for (std::size_t i = 1; i < 4; ++i) expect_the_message_alone(json["turns"][i]);

  expect_figures(json["last_turn"], {"ttft_ms", "prefill_alone_ms", "prefill_alone_at_depth_0_ms"});
  expect_figures(json["full_read"], {"ttft_ms", "ratio"});
  expect_figures(json, {"last_turn_ratio", "threads", "context_tokens"});

  const Json& restart = json["restart"];
  expect_figures(restart, kTurnFigures);
  expect_figures(restart, {"prefill_alone_ms", "ratio", "rows_from_disk", "state_bytes"});
  expect_the_message_alone(restart);
  EXPECT_EQ(restart["rows_from_disk"], restart["reused_tokens"]);
  EXPECT_GT(restart["state_bytes"], 0U);

  // How far the background work came is a matter of time; the scripted answer is the most that it may leave over.
  const Json& interrupted = json["interrupted"];
  expect_figures(interrupted, kTurnFigures);
  expect_figures(interrupted, {"prefill_alone_ms", "ratio", "stop_ms", "ratio_with_stop"});
  EXPECT_GT(interrupted["prompt_tokens"], restart["prompt_tokens"]);
  EXPECT_LE(interrupted["read_tokens"], kNewTokens + 12 + 2 * kAround);

  expect_figures(json["memory"], {"most_bytes_in_memory", "memory_budget_bytes", "peak_rss_bytes"});
  EXPECT_EQ(json["memory"]["memory_budget_bytes"], 256U << 20);
  EXPECT_EQ(json["model"], GetParam());
  EXPECT_EQ(json["architecture"], GetParam() == kDense ? "qwen3" : "qwen35");
  EXPECT_EQ(json["threads"], 1U);
  EXPECT_EQ(json["context_tokens"], 1024U);
}

// With an answer so long that the message does come in the middle.
TEST_P(TurnsVerb, ReadsNothingAgainThatWasReadAheadBeforeAnInterruption) {
  const Scratch scratch;
  const Outcome outcome = run({"turns", model_path(GetParam()), "--turns", "2", "--new-tokens", "60", "--answer-tokens",
                               "900", "--threads", "1", "--json"},
                              temporary_files_in(scratch.path("")));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out, nullptr, false);
  const Json& interrupted = json["interrupted"];
  const std::size_t grown =
      interrupted["prompt_tokens"].get<std::size_t>() - json["restart"]["prompt_tokens"].get<std::size_t>();
  EXPECT_GE(grown, 900U + kNewTokens - 4);
  EXPECT_LE(interrupted["read_tokens"].get<std::size_t>() + interrupted["read_ahead_tokens"].get<std::size_t>(),
            grown + kAround);
}

INSTANTIATE_TEST_SUITE_P(Models, TurnsVerb, testing::Values(kDense, kHybrid), [](const auto& parameter) {
  return std::string(parameter.param == kDense ? "Dense" : "Hybrid");
});

TEST(Turns, KeepsLessInMemoryIfAskedTo) {
  const Json exact = measured(kHybrid, {"--no-think"});
  const Json half = measured(kHybrid, {"--no-think", "--checkpoint-f16"});
  EXPECT_EQ(exact["thinking"], false);
  EXPECT_LT(half["memory"]["most_bytes_in_memory"], exact["memory"]["most_bytes_in_memory"]);
  const Json small = measured(kHybrid, {"--checkpoint-memory", "1MB"});
  EXPECT_EQ(small["memory"]["memory_budget_bytes"], 1U << 20);
  EXPECT_LE(small["memory"]["most_bytes_in_memory"], 1U << 20);
}

TEST(Turns, PrintsATableAndALineForEachComparison) {
  const Outcome outcome = run(turns(kHybrid));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("turn    prompt    reused      read     TTFT ms     idle ms\n   1 "));
  for (const char* line : {"\n   4 ", "\nThe last turn's first token came after ", "\nOn an empty state, ",
                           "\nReading that whole prompt again takes ", "\nAfter a restart, with ", "\nA message ",
                           "\nMemory: kept states "}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
}

TEST(Turns, TakesTheContextThatTheScriptNeeds) {
  const std::vector<std::string> arguments{"turns", model_path(kDense), "--turns",   "2", "--new-tokens",
                                           "200",   "--json",           "--threads", "1"};
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(json["context_tokens"], 1792U);  // 4 * (200 + 96 + 32) + 256, in steps of 256
}

TEST(Turns, LeavesASessionInTheFolderThatIsGivenAndUsesNoneTwice) {
  const Scratch scratch;
  const std::vector<std::string> arguments = turns(kDense, {"--json", "--folder", scratch.path("kept")});
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Outcome listed = run({"sessions", "list", "--json", "--sessions-dir", scratch.path("kept")});
  const Json sessions = Json::parse(listed.out, nullptr, false);
  ASSERT_EQ(sessions.size(), 1U) << listed.all();
  EXPECT_EQ(sessions[0]["name"], "turns");
  EXPECT_EQ(sessions[0]["messages"], 12U);

  const Outcome again = run(arguments);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("the session of an earlier run"));
  EXPECT_EQ(again.error_lines(), 1U);
}

TEST(Turns, RefusesWhatCannotBeMeasured) {
  // Said before a model is looked for.
  const Outcome narrow = run({"turns", "no such model.gguf", "--context", "1024"});
  EXPECT_EQ(narrow.exit_code, 2);
  EXPECT_THAT(narrow.err, HasSubstr("a context of 1024 does not hold them"));
  EXPECT_EQ(run({"turns", "no such model.gguf"}).exit_code, 3);
  EXPECT_EQ(run({"turns", model_path(kDense), "--turns", "1"}).exit_code, 2);

  const Scratch scratch;
  const Outcome nowhere = run(turns(kDense), temporary_files_in(scratch.path("nowhere")));
  EXPECT_EQ(nowhere.exit_code, 6);
  EXPECT_EQ(nowhere.error_lines(), 1U) << nowhere.err;
  EXPECT_EQ(nowhere.out, "");
}

TEST(TurnsOnATerminal, ShowsItsStepsAndLeavesNothingBehindOnCtrlC) {
  const Scratch scratch;
  // As many turns as would take minutes.
  Terminal terminal({"turns", model_path(kHybrid), "--turns", "500", "--new-tokens", "60", "--threads", "1"},
                    {"TMPDIR=" + scratch.path("")});
  ASSERT_TRUE(terminal.wait_for("turn 1 of 500: ")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for("turn 2 of 500: ")) << terminal.screen();
  ASSERT_EQ(scratch.names().size(), 1U);
  EXPECT_THAT(scratch.names(), ElementsAre(HasSubstr("kazeia-turns-")));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait_for_exit(), 130);
  EXPECT_THAT(terminal.screen(), HasSubstr("stopped by the user"));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

}  // namespace
}  // namespace kazeia::cli_test
