// `kazeia plan`, and that what it says is what a run takes.

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json json_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// 120 plain words, so that the widest graph that the settings allow is really run.
std::string long_prompt() {
  std::string text;
  for (int i = 0; i < 120; ++i) text += "number " + std::to_string(i) + " ";
  return text;
}

TEST(Plan, NamesThePartsAndWhetherTheyFit) {
  const Json plan = json_of({"plan", model_path(kHybrid), "--json"});
  std::uint64_t sum = 0;
  for (const auto& part : plan["parts"]) sum += part.get<std::uint64_t>();
  EXPECT_EQ(plan["peak_bytes"], sum);
  EXPECT_EQ(plan["fits"], true);
  for (const char* part :
       {"weights", "kv_cache", "recurrent_state", "compute", "vocabulary", "checkpoints", "program"}) {
    EXPECT_GT(plan["parts"][part].get<std::uint64_t>(), 0U) << part;
  }
}

TEST(Plan, SaysWhatWouldFitIfItDoesNot) {
  const std::vector<std::string> asked{"plan", model_path(kDense), "--context", "200000", "--budget", "200MB"};
  const Outcome text = run(asked);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("it does not fit"));
  const Json plan = json_of(joined(asked, {"--json"}));
  EXPECT_EQ(plan["fits"], false);
  ASSERT_GT(plan["changes_that_fit"].size(), 0U) << text.out;
  for (const auto& change : plan["changes_that_fit"]) {
    EXPECT_LE(change["peak_bytes"].get<std::uint64_t>(), 200U << 20);
  }
}

TEST(Plan, KeepsARunFromLoadingWhatDoesNotFit) {
  const std::vector<std::string> asked{"run", model_path(kDense), "-p", "What is 2?", "--context", "500000"};
  const Outcome refused = run(joined(asked, {"--budget", "100MB"}));
  EXPECT_EQ(refused.exit_code, 5) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("the budget is 100.0 MiB"));
  EXPECT_THAT(refused.err, HasSubstr("--context "));
  EXPECT_EQ(refused.out, "");
  const Outcome allowed = run({"run", model_path(kDense), "-p", "What is 2?", "--budget", "0", "--quiet"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
}

// The mini models are smaller than the program around them; what can be predicted to a few percent begins here.
class PlanOfARealShape : public testing::TestWithParam<const char*> {};

TEST_P(PlanOfARealShape, IsWithinFivePercentOfWhatARunTakesAndNeverTwoPercentUnder) {
  const Scratch scratch;
  const std::string model = scratch.path("shape.gguf");
  ASSERT_EQ(run({"synth", GetParam(), model}).exit_code, 0);
  const std::vector<std::vector<std::string>> settings{
      {"--context", "1024", "--ubatch", "64"},
      {"--context", "4096", "--ubatch", "64", "--kv", "q8_0"},
      {"--context", "8192", "--ubatch", "128", "--kv", "q4_0"},
      {"--context", "8192", "--ubatch", "64", "--threads", "1"},
  };
  for (const auto& setting : settings) {
    const Json plan = json_of(joined({"plan", model, "--json", "--checkpoint-memory", "0"}, setting));
    const Json real =
        json_of(joined({"run", model, "-p", long_prompt(), "--max-tokens", "2", "--json", "--budget", "0"}, setting));
    const double ratio = plan["peak_bytes"].get<double>() / real["peak_rss_bytes"].get<double>();
    EXPECT_GT(ratio, 0.98) << GetParam() << " " << testing::PrintToString(setting);
    EXPECT_LT(ratio, 1.05) << GetParam() << " " << testing::PrintToString(setting);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanOfARealShape, testing::Values("qwen3-0.6b", "qwen3.5-0.8b"));

}  // namespace
}  // namespace kazeia::cli_test
