// The NPU from the outside, on the emulated DSP: what `make npu-demo` shows, and what a user sees when it fails.

#include <cstdlib>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using Json = nlohmann::json;

// The program looks for the driver where its environment says; KAZEIA_EMULATED_DSP is the folder of the emulated one.
const bool kDriverIsFound = setenv("LD_LIBRARY_PATH", KAZEIA_EMULATED_DSP, 1) == 0;

// 33 tokens with its system message: one row of tiles, and one more.
std::vector<std::string> ask(const std::string& model, const std::string& profile, const std::string& route) {
  return {"run",        model_path(model),
          "--system",   "Answer in English.",
          "-p",         "What is the capital of France?",
          "--temp",     "0",
          "--threads",  "1",
          "--no-think", "--json",
          "--route",    route,
          "--profile",  profile};
}

Json parsed(const Outcome& outcome) {
  return Json::parse(outcome.out, nullptr, false);
}

TEST(NpuProgram, ReadsThePromptOnTheNpuAndShowsItsCounters) {
  ASSERT_TRUE(kDriverIsFound);
  for (const std::string& model : {kDense, kHybrid}) {
    const Scratch scratch;
    const Outcome outcome = run(ask(model, scratch.path("profile.json"), "npu-prefill"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json object = parsed(outcome);
    ASSERT_TRUE(object.is_object()) << outcome.out;
    EXPECT_EQ(object["text"], "The capital of France is Paris.");
    EXPECT_EQ(object["placement"], "npu");
    EXPECT_EQ(object["route"], "npu-prefill");
    const Json& npu = object["npu"];
    EXPECT_EQ(npu["prefill_tokens"], 33);
    EXPECT_GT(npu["nodes"], 0);
    EXPECT_GT(npu["switches"], 0);
    EXPECT_GT(npu["switch_us"], 0.0);
    EXPECT_GT(npu["weight_bytes_resident"], 0);
    EXPECT_EQ(npu["weight_bytes_copied"], 0);
    EXPECT_EQ(npu["failure"], nullptr);
    EXPECT_TRUE(npu["self_check"]["passed"]);
  }
}

TEST(NpuProgram, UsesTheNpuByItselfWhereThereIsOneAndRemembersThatItWasRight) {
  const Scratch scratch;
  const std::string profile = scratch.path("profile.json");
  const Json first = parsed(run(ask(kHybrid, profile, "auto")));
  ASSERT_TRUE(first.is_object());
  EXPECT_EQ(first["route"], "npu-prefill");
  EXPECT_FALSE(first["npu"]["self_check"]["remembered"]);
  const Json second = parsed(run(ask(kHybrid, profile, "auto")));
  EXPECT_TRUE(second["npu"]["self_check"]["remembered"]);
  EXPECT_EQ(second["text"], first["text"]);
}

TEST(NpuProgram, SaysWhenThereIsNoneAndAnswersWithTheCpu) {
  const Scratch scratch;
  // Nobody's driver is in an empty folder.
  const Conditions nowhere{.environment = {"LD_LIBRARY_PATH=" + scratch.path("")}};
  const Outcome asked = run(ask(kDense, scratch.path("p.json"), "npu-prefill"), nowhere);
  EXPECT_EQ(asked.exit_code, 0);
  EXPECT_NE(asked.err.find("no driver"), std::string::npos) << asked.err;
  EXPECT_EQ(parsed(asked)["route"], "cpu");
  EXPECT_EQ(parsed(asked)["text"], "The capital of France is Paris.");
  const Outcome not_asked = run(ask(kDense, scratch.path("p.json"), "auto"), nowhere);
  EXPECT_EQ(not_asked.err, "");
  EXPECT_EQ(parsed(not_asked)["route"], "cpu");
  EXPECT_TRUE(scratch.names().empty());  // and nothing was written down
}

TEST(NpuProgram, GivesTheCpusAnswerInOneLineMoreWhenTheNpuFails) {
  const Scratch scratch;
  const std::string profile = scratch.path("profile.json");
  ASSERT_EQ(run(ask(kHybrid, profile, "auto")).exit_code, 0);  // the check is remembered: the next run starts with work
  const Outcome outcome = run(ask(kHybrid, profile, "auto"), {.environment = {"KAZEIA_DSP_FAULT=error"}});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_NE(outcome.err.find("the NPU failed"), std::string::npos) << outcome.err;
  EXPECT_EQ(parsed(outcome)["text"], "The capital of France is Paris.");
  EXPECT_FALSE(parsed(outcome)["npu"]["failure"].is_null());
  // One failure: one start without the device, then it is tried, and checked, again.
  const Outcome left_alone = run(ask(kHybrid, profile, "auto"));
  EXPECT_EQ(parsed(left_alone)["route"], "cpu");
  EXPECT_EQ(left_alone.error_lines(), 1u) << left_alone.err;
  const Json again = parsed(run(ask(kHybrid, profile, "auto")));
  EXPECT_EQ(again["route"], "npu-prefill");
  EXPECT_FALSE(again["npu"]["self_check"]["remembered"]);
}

// Every placement is held against the mini models' dialogues; these are long enough for the NPU, most of them.
TEST(NpuProgram, AnswersTheMiniModelsDialoguesAsTheCpuDoes) {
  const Scratch scratch;
  for (const auto& [model, least] : {std::pair(kDense, "199"), std::pair(kHybrid, "200")}) {
    const Outcome outcome = run({"quality", model_path(model), "--dialogues", KAZEIA_VECTORS "/dialogues.jsonl",
                                 "--limit", "200", "--at-least", least, "--threads", "1", "--json", "--route",
                                 "npu-prefill", "--profile", scratch.path("p.json")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.all();
    EXPECT_EQ(parsed(outcome)["route"], "npu-prefill");
    EXPECT_EQ(parsed(outcome)["npu_failure"], nullptr);
    EXPECT_GT(parsed(outcome)["npu_prefill_tokens"], 5000);
  }
}

TEST(NpuProgram, ExaminesTheNpuOperationByOperation) {
  const Scratch scratch;
  const Outcome outcome = run({"doctor", "--npu", "--json", "--threads", "1", "--profile", scratch.path("p.json")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.all();
  const Json report = parsed(outcome);
  EXPECT_TRUE(report["usable"]);
  EXPECT_EQ(report["device"]["architecture"], 79);
  EXPECT_EQ(report["device"]["sessions"], 1);
  EXPECT_GE(report["operations"].size(), 25u);
  for (const Json& operation : report["operations"]) {
    EXPECT_TRUE(operation["supported"]) << operation;
    EXPECT_TRUE(operation["correct"]) << operation;
  }
}

TEST(NpuProgram, MeasuresFromWhichWidthOnTheNpuPaysAndRemembersIt) {
  const Scratch scratch;
  const std::string profile = scratch.path("p.json");
  const Outcome outcome = run(
      {"doctor", "--npu", "--json", "--threads", "1", "--profile", profile, "--model", model_path(kHybrid), "--save"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.all();
  const Json report = parsed(outcome);
  EXPECT_GT(report["self_check"]["agreement"], 0.99);
  EXPECT_LT(report["self_check"]["distinction"], 0.99);
  EXPECT_EQ(report["speed"]["widths"].size(), 5u);
  EXPECT_GT(report["speed"]["switch_ms"], 0.0);
  const Json saved = Json::parse(read_file(profile), nullptr, false);
  const std::int64_t least = report["speed"]["recommended_min_tokens"];
  EXPECT_EQ(saved["prefill_min_tokens"], least > 0 ? least : 65536);
}

TEST(NpuProgram, FindsADeviceThatComputesNonsense) {
  const Scratch scratch;
  const Outcome outcome = run({"doctor", "--npu", "--json", "--threads", "1", "--profile", scratch.path("p.json")},
                              {.environment = {"KAZEIA_DSP_FAULT=constant"}});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_FALSE(parsed(outcome)["usable"]);
  EXPECT_NE(parsed(outcome)["verdict"].get<std::string>().find("wrong results"), std::string::npos);
}

}  // namespace
}  // namespace kazeia::cli_test
