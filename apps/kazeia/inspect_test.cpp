#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gguf/test_file.h"
#include "program_test.h"

namespace kazeia::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Inspect, ShowsWhatTheHybridModelIs) {
  const ProgramRun run = run_program("inspect " + shipped_model("kazeia-mini-qwen35-q4_0.gguf"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("qwen35"), HasSubstr("3 recurrent, 1 attention"), HasSubstr("RRRA"),
                                HasSubstr("Q4_0"), HasSubstr("tied"), HasSubstr("<|im_end|>"), HasSubstr("CC0-1.0")));
  EXPECT_THAT(run.output, Not(HasSubstr("blk.0")));
}

TEST(Inspect, ListsTensorsWhenAsked) {
  const ProgramRun run = run_program("inspect --tensors " + shipped_model("kazeia-mini-qwen3-f16.gguf"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("blk.3.ffn_down.weight"), HasSubstr("768 x 256")));
}

TEST(Inspect, PrintsOneJsonObject) {
  const ProgramRun run = run_program("inspect --json --tensors " + shipped_model("kazeia-mini-qwen35-q4_0.gguf"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const nlohmann::json json = nlohmann::json::parse(run.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << run.output;
  EXPECT_EQ(json["architecture"], "qwen35");
  EXPECT_EQ(json["layers"], (nlohmann::json{"recurrent", "recurrent", "recurrent", "attention"}));
  EXPECT_EQ(json["tokenizer"]["tokens"], 2048);
  EXPECT_EQ(json["tensors"].size(), 55u);
  EXPECT_EQ(json["loadable"], true);
  double share = 0;
  for (const auto& type : json["types"]) share += type["share_percent"].get<double>();
  EXPECT_NEAR(share, 100, 1e-6);
}

TEST(Inspect, ReplacesTextThatIsNotUtf8InJson) {
  const gguf::TestFolder folder;
  folder.put("m.gguf", gguf::TestFile().string("general.name", "caf\xe9").tensor("a", {4}).bytes());
  const ProgramRun run = run_program("inspect --json " + folder.at("m.gguf"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(nlohmann::json::parse(run.output)["name"], "caf\xef\xbf\xbd");
}

TEST(Inspect, SaysWhyAFileCannotBeRun) {
  const gguf::TestFolder folder;
  folder.put("m.gguf", gguf::TestFile().string("general.name", "\x1b[31mred").tensor("a", {4}).bytes());
  const ProgramRun run = run_program("inspect " + folder.at("m.gguf"));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, HasSubstr("This file cannot be run: unusable model: metadata 'general.architecture'"));
  EXPECT_THAT(run.output, Not(HasSubstr("\x1b")));
}

TEST(Inspect, RefusesInOneSentence) {
  const gguf::TestFolder folder;
  folder.put("text.txt", "hello, this is a text\n");
  folder.put("cut.gguf", gguf::file_text(shipped_model("kazeia-mini-qwen3-q4_0.gguf")).substr(0, 100000));
  for (const auto& [name, reason] :
       std::initializer_list<std::pair<const char*, const char*>>{{"absent.gguf", "no file at"},
                                                                  {"", "directory"},
                                                                  {"text.txt", "not a GGUF file"},
                                                                  {"cut.gguf", "at byte"}}) {
    const ProgramRun run = run_program("inspect " + folder.at(name));
    EXPECT_EQ(run.exit_code, 3) << run.output;
    EXPECT_THAT(run.output, AllOf(::testing::StartsWith("kazeia: "), HasSubstr(reason)));
    EXPECT_EQ(std::count(run.output.begin(), run.output.end(), '\n'), 1) << run.output;
  }
}

}  // namespace
}  // namespace kazeia::cli
