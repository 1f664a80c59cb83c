// `kazeia run`, from the outside.

#include <signal.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using Json = nlohmann::json;

// A grammar that never ends: the answer goes on until something else stops it.
constexpr const char* kEndless = "root ::= [a-z] root\n";

std::vector<std::string> ask(const std::string& model, const std::string& prompt,
                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"run", model_path(model), "-p", prompt, "--temp", "0", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Run, WritesTheAnswerAloneToAPipe) {
  for (const std::string& model : {kDense, kHybrid}) {
    const Outcome outcome = run(ask(model, "What is the capital of France?"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "The capital of France is Paris.\n");
    for (const char* row : {"load", "prompt", "first token", "prefill", "decode", "peak memory"}) {
      EXPECT_NE(outcome.err.find(row), std::string::npos) << row;
    }
    EXPECT_EQ(outcome.err.find_first_of("\r\x1b"), std::string::npos);
  }
}

TEST(Run, ReadsThePromptFromStdinOrAFile) {
  const Scratch scratch;
  const std::string file = scratch.write("prompt.txt", "Quelle est la capitale de la France ?\n");
  const std::vector<std::string> base{"run", model_path(kHybrid), "--temp", "0", "--quiet", "--threads", "1"};
  const Outcome from_stdin = run(base, {.input = "What is 7 + 5?\n"});
  EXPECT_EQ(from_stdin.out, "7 + 5 = 12.\n");
  EXPECT_EQ(from_stdin.err, "");
  std::vector<std::string> with_file = base;
  with_file.insert(with_file.end(), {"-f", file});
  EXPECT_EQ(run(with_file).out, "La capitale de la France est Paris.\n");
}

TEST(Run, PrintsOneJsonObject) {
  const Outcome outcome = run(ask(kHybrid, "What is the capital of Japan?", {"--json", "--seed", "9"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json object = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_EQ(object["text"], "The capital of Japan is Tokyo.");
  EXPECT_FALSE(object["thinking"].get<std::string>().empty());
  EXPECT_EQ(object["tool_calls"], Json::array());
  EXPECT_EQ(object["stop_reason"], "end");
  EXPECT_EQ(object["architecture"], "qwen35");
  EXPECT_EQ(object["placement"], "cpu");
  EXPECT_GT(object["tile_bytes"], 2'000'000);
  EXPECT_EQ(object["cached_tile_bytes"], 0);
  EXPECT_EQ(object["threads"], 1);
  EXPECT_EQ(object["seed"], 9);
  EXPECT_EQ(object["context_tokens"], 2048);  // what the model was trained with
  for (const char* key : {"prompt_tokens", "generated_tokens", "load_ms", "ttft_ms", "prefill_ms", "decode_ms",
                          "prefill_tps", "decode_tps", "peak_rss_bytes"}) {
    ASSERT_TRUE(object[key].is_number()) << key;
    EXPECT_GT(object[key].get<double>(), 0) << key;
  }
}

TEST(Run, KeepsPackedWeightsForTheNextStart) {
  const Scratch scratch;
  const std::vector<std::string> flags{"--json", "--no-think", "--tile-cache", scratch.path("tiles")};
  for (const bool cached : {false, true}) {
    const Outcome outcome = run(ask(kHybrid, "Hello!", flags));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json object = Json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(object.is_object()) << outcome.out;
    EXPECT_EQ(object["text"], "Hello! How can I help you?");
    EXPECT_EQ(object["cached_tile_bytes"], cached ? object["tile_bytes"] : Json(0));
  }
}

TEST(Run, LeavesTheTilesOutWhenAskedForUpstreamsLayouts) {
  const Outcome outcome = run(ask(kHybrid, "Hello!", {"--json", "--no-think", "--upstream-layouts"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json object = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_EQ(object["text"], "Hello! How can I help you?");
  EXPECT_EQ(object["placement"], "upstream");
  EXPECT_EQ(object["tile_bytes"], 0);
  EXPECT_EQ(run(ask(kHybrid, "Hello!", {"--upstream-layouts", "--tile-cache", "tiles"})).exit_code, 2);
}

TEST(Run, AnswersWithoutThinkingWhenAsked) {
  const Outcome outcome = run(ask(kDense, "Hello!", {"--json", "--no-think"}));
  const Json object = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_EQ(object["thinking"], "");
  EXPECT_EQ(object["text"], "Hello! How can I help you?");
}

TEST(Run, StopsAtAStopStringAndAtMaxTokens) {
  const Outcome stopped =
      run(ask(kHybrid, "Count from 1 to 9.", {"--json", "--no-think", "--stop", "7", "--stop", "5"}));
  const Json object = Json::parse(stopped.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << stopped.out;
  EXPECT_EQ(object["text"], "1, 2, 3, 4, ");
  EXPECT_EQ(object["stop_reason"], "stop_string");

  const Outcome cut = run(ask(kHybrid, "Count from 1 to 9.", {"--no-think", "--max-tokens", "4"}));
  EXPECT_EQ(cut.exit_code, 0);
  EXPECT_LT(cut.out.size(), 12U);
  EXPECT_NE(cut.err.find("--max-tokens"), std::string::npos);
}

TEST(Run, GivesTheSameTextForTheSameSeed) {
  const auto hot = [](const std::string& seed) {
    return run({"run", model_path(kDense), "-p", "Hello!", "--threads", "1", "--no-think", "--quiet", "--temp", "2",
                "--top-k", "0", "--top-p", "1", "--max-tokens", "20", "--seed", seed})
        .out;
  };
  const std::string text = hot("3");
  EXPECT_GT(text.size(), 1U);
  EXPECT_EQ(hot("3"), text);
  EXPECT_NE(hot("4"), text);
}

TEST(Run, ConstrainsTheAnswerToASchemaOrAGrammar) {
  const Scratch scratch;
  const std::string schema = R"({"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]})";
  for (const std::string& given : {schema, std::string("@").append(scratch.write("schema.json", schema))}) {
    const Outcome outcome = run(ask(kDense, "What is 1 + 1?", {"--json-schema", given, "--quiet"}));
    const Json value = Json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(value.is_object()) << outcome.out << outcome.err;
    EXPECT_TRUE(value["n"].is_boolean());
  }
  const std::string grammar = scratch.write("yes.gbnf", "root ::= \"yes\" | \"no\"\n");
  const std::string out = run(ask(kDense, "Hello!", {"--grammar", grammar, "--quiet"})).out;
  EXPECT_TRUE(out == "yes\n" || out == "no\n") << out;
}

TEST(Run, SendsRawTextWithoutATemplate) {
  const std::string prompt =
      "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(run(ask(kHybrid, prompt, {"--raw", "--quiet"})).out, "2 + 3 = 5.\n");
}

TEST(Run, AcceptsToolDefinitionsAndRefusesBadOnes) {
  const Scratch scratch;
  const std::string good = scratch.write("tools.json", R"([{"type": "function", "function": {"name": "now"}}])");
  const Outcome outcome = run(ask(kHybrid, "Hello!", {"--tools", good, "--quiet"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello! How can I help you?\n");
  const std::string bad = scratch.write("bad.json", "{}");
  const Outcome refused = run(ask(kHybrid, "Hello!", {"--tools", bad}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.error_lines(), 1U);
}

TEST(Run, StopsAtATokenBoundaryOnInterrupt) {
  const Scratch scratch;
  const std::string grammar = scratch.write("endless.gbnf", kEndless);
  const std::vector<std::string> arguments =
      ask(kDense, "Hello!", {"--grammar", grammar, "--no-think", "--context", "100000", "--max-tokens", "-1"});
  const Outcome outcome = run(arguments, {.after_first_output = [](pid_t child) { ::kill(child, SIGINT); }});
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_NE(outcome.err.find("by the user"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("decode"), std::string::npos) << outcome.err;
}

TEST(Run, WarnsAboutAContextBeyondTheTrainedOne) {
  const Outcome outcome = run(ask(kDense, "Hello!", {"--context", "4096"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("trained with 2048"), std::string::npos) << outcome.err;
}

TEST(Run, DimsThinkingOnATerminalAndRespectsNoColor) {
  Terminal coloured(ask(kHybrid, "What is 3 + 4?"));
  EXPECT_TRUE(coloured.wait_for("\x1b[2m"));
  EXPECT_TRUE(coloured.wait_for("\x1b[0m"));
  EXPECT_TRUE(coloured.wait_for("3 + 4 = 7."));
  EXPECT_EQ(coloured.wait_for_exit(), 0);

  Terminal plain(ask(kHybrid, "What is 3 + 4?"), {"NO_COLOR=1"});
  EXPECT_TRUE(plain.wait_for("[thinking]"));
  EXPECT_TRUE(plain.wait_for("[answer] 3 + 4 = 7."));
  EXPECT_EQ(plain.wait_for_exit(), 0);
  EXPECT_EQ(plain.screen().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace kazeia::cli_test
