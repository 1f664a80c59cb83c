// Every error that a user can cause: one sentence, what to do next, the documented exit code, nothing else.

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using Json = nlohmann::json;

// One line on stderr that names the cause, and the exit code.
void expect_error(const Outcome& outcome, int exit_code, const std::string& reason) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("kazeia: ")) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with(".\n")) << outcome.err;
  EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
}

std::vector<std::string> hello(const std::string& path, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"run", path, "-p", "Hello!", "--temp", "0", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// A shipped model with `from` replaced by `to` of the same length, once, behind `anchor`.
std::string edited_model(const Scratch& scratch, const std::string& anchor, const std::string& from,
                         const std::string& to) {
  std::string bytes = read_file(model_path(kDense));
  const std::size_t at = bytes.find(from, bytes.find(anchor));
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(from.size(), to.size());
  bytes.replace(at, from.size(), to);
  return scratch.write("edited.gguf", bytes);
}

TEST(Errors, MissingFile) {
  const Scratch scratch;
  expect_error(run(hello(scratch.path("absent.gguf"))), 3, "no file at");
  expect_error(run({"chat", scratch.path("absent.gguf")}), 3, "no file at");
}

TEST(Errors, Directory) {
  const Scratch scratch;
  expect_error(run(hello(scratch.path(""))), 3, "is a directory");
}

TEST(Errors, NotAGguf) {
  const Scratch scratch;
  expect_error(run(hello(scratch.write("text.gguf", "This is a letter and not a model, dear reader."))), 3, "GGUF");
  expect_error(run(hello(scratch.write("empty.gguf", ""))), 3, "empty.gguf");
}

TEST(Errors, TruncatedFile) {
  const Scratch scratch;
  const std::string whole = read_file(model_path(kDense));
  for (const std::size_t keep : {std::size_t{10}, std::size_t{1000}, whole.size() / 2, whole.size() - 1}) {
    expect_error(run(hello(scratch.write("cut.gguf", whole.substr(0, keep)))), 3, "cut.gguf");
  }
}

TEST(Errors, UnsupportedArchitecture) {
  const Scratch scratch;
  expect_error(run(hello(edited_model(scratch, "general.architecture", "qwen3", "zwen3"))), 4, "zwen3");
}

TEST(Errors, NoChatTemplate) {
  const Scratch scratch;
  const std::string path = edited_model(scratch, "tokenizer", "tokenizer.chat_template", "tokenizer.chat_temp.xyz");
  const Outcome refused = run(hello(path));
  expect_error(refused, 4, "no chat template");
  EXPECT_NE(refused.err.find("--raw"), std::string::npos);
  expect_error(run({"chat", path}), 4, "no chat template");
  const Outcome raw = run(hello(path, {"--raw", "--quiet", "--max-tokens", "3"}));
  EXPECT_EQ(raw.exit_code, 0) << raw.err;
}

TEST(Errors, PromptLongerThanTheContext) {
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "many words ";
  const Outcome outcome = run({"run", model_path(kDense), "-p", prompt, "--context", "256"});
  expect_error(outcome, 5, "256");
  EXPECT_NE(outcome.err.find("--context"), std::string::npos);
}

TEST(Errors, ContextLargerThanMemory) {
  const Outcome outcome = run(hello(model_path(kDense), {"--context", "2000000000", "--quiet"}));
  expect_error(outcome, 5, "memory");
}

TEST(Errors, FullDisk) {
  const Outcome outcome = run(hello(model_path(kDense)), {.stdout_file = "/dev/full"});
  expect_error(outcome, 6, "No space left");
  const Outcome json = run(hello(model_path(kDense), {"--json"}), {.stdout_file = "/dev/full"});
  expect_error(json, 6, "No space left");
}

TEST(Errors, FileSizeLimitReached) {
  const Scratch scratch;
  const Conditions setup{.stdout_file = scratch.path("answer.txt"), .file_size_limit = 5};
  expect_error(run(hello(model_path(kDense), {"--no-think"}), setup), 6, "standard output");
  EXPECT_EQ(read_file(scratch.path("answer.txt")), "Hello");
}

TEST(Errors, ClosedOutput) {
  const Scratch scratch;
  const std::string endless = scratch.write("endless.gbnf", "root ::= [a-z] root\n");
  const Outcome outcome =
      run(hello(model_path(kDense), {"--grammar", endless, "--no-think"}), {.close_stdout_after_first_byte = true});
  expect_error(outcome, 6, "closed");
}

TEST(Errors, DiskFullWhileSavingAConversation) {
  const Scratch scratch;
  const std::string path = scratch.path("talk.json");
  const Outcome outcome = run({"chat", model_path(kDense), "--no-think", "--threads", "1"},
                              {.input = "Hello!\n/save " + path + "\n", .file_size_limit = 20});
  EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
  EXPECT_NE(outcome.err.find("no space left"), std::string::npos) << outcome.err;
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Errors, OptionOutOfRange) {
  for (const auto& [flag, value] :
       {std::pair{"--temp", "9"}, std::pair{"--top-p", "0"}, std::pair{"--min-p", "2"}, std::pair{"--top-k", "-1"},
        std::pair{"--repeat-penalty", "0"}, std::pair{"--presence-penalty", "-3"}}) {
    // Known before anything is loaded: the model does not even have to exist.
    const Outcome outcome = run({"run", "absent.gguf", "-p", "x", flag, value});
    EXPECT_EQ(outcome.exit_code, 2) << flag << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  }
}

TEST(Errors, UnknownFlagOrVerb) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"dance"},
                                                    {"run"},
                                                    {"run", "m.gguf", "--colour"},
                                                    {"run", "m.gguf", "--temp", "warm"},
                                                    {"run", "m.gguf", "-p", "a", "-f", "b"},
                                                    {"run", "m.gguf", "--raw", "--system", "x"},
                                                    {"run", "m.gguf", "--context", "0"},
                                                    {"run", "m.gguf", "--threads", "-2"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("kazeia: ")) << outcome.err;
    EXPECT_NE(outcome.err.find("--help"), std::string::npos) << outcome.err;
  }
}

TEST(Errors, EmptyPrompt) {
  expect_error(run({"run", model_path(kDense)}, {.input = "\n"}), 2, "prompt is empty");
}

TEST(Errors, SchemaOrGrammarThatDoesNotParse) {
  const Scratch scratch;
  expect_error(run(hello(model_path(kDense), {"--json-schema", "{\"type\": "})), 2, "schema");
  expect_error(run(hello(model_path(kDense), {"--grammar", scratch.write("bad.gbnf", "root ::= (")})), 2, "grammar");
  expect_error(run(hello(model_path(kDense), {"--grammar", scratch.path("absent.gbnf")})), 3, "absent.gbnf");
}

TEST(Errors, AreOneJsonObjectWithJson) {
  const Outcome outcome = run(hello("absent.gguf", {"--json"}));
  expect_error(outcome, 3, "no file at");
  const Json object = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_EQ(object["error"]["code"], "file");
  EXPECT_NE(object["error"]["message"].get<std::string>().find("absent.gguf"), std::string::npos);
  EXPECT_FALSE(object["error"]["next"].get<std::string>().empty());
}

}  // namespace
}  // namespace kazeia::cli_test
