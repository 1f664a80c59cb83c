#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli_program.h"
#include "gguf/test_file.h"

namespace kazeia::cli {
namespace {

using cli_test::model_path;
using cli_test::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Inspect, ShowsWhatTheHybridModelIs) {
  const Outcome run = cli_test::run({"inspect", model_path("kazeia-mini-qwen35-q4_0.gguf")});
  EXPECT_EQ(run.exit_code, 0) << run.all();
  EXPECT_THAT(run.all(), AllOf(HasSubstr("qwen35"), HasSubstr("3 recurrent, 1 attention"), HasSubstr("RRRA"),
                               HasSubstr("Q4_0"), HasSubstr("tied"), HasSubstr("<|im_end|>"), HasSubstr("CC0-1.0"),
                               HasSubstr("\ntiles: "), HasSubstr("; on upstream's path: ")));
  EXPECT_THAT(run.all(), Not(HasSubstr("blk.0")));
}

TEST(Inspect, ListsTensorsWhenAsked) {
  const Outcome run = cli_test::run({"inspect", "--tensors", model_path("kazeia-mini-qwen3-f16.gguf")});
  EXPECT_EQ(run.exit_code, 0) << run.all();
  EXPECT_THAT(run.all(), AllOf(HasSubstr("blk.3.ffn_down.weight"), HasSubstr("768 x 256")));
}

TEST(Inspect, PrintsOneJsonObject) {
  const Outcome run = cli_test::run({"inspect", "--json", "--tensors", model_path("kazeia-mini-qwen35-q4_0.gguf")});
  ASSERT_EQ(run.exit_code, 0) << run.all();
  const nlohmann::json json = nlohmann::json::parse(run.all(), nullptr, false);
  ASSERT_TRUE(json.is_object()) << run.all();
  EXPECT_EQ(json["architecture"], "qwen35");
  EXPECT_EQ(json["layers"], (nlohmann::json{"recurrent", "recurrent", "recurrent", "attention"}));
  EXPECT_EQ(json["tokenizer"]["tokens"], 2048);
  EXPECT_EQ(json["tensors"].size(), 55u);
  EXPECT_EQ(json["loadable"], true);
  // The F32 tensors stay with upstream, and nothing is counted twice or left out.
  EXPECT_EQ(json["upstream_path"]["types"], nlohmann::json{"F32"});
  EXPECT_EQ(json["tiles"]["tensors"].get<int>() + json["upstream_path"]["tensors"].get<int>(), 55);
  EXPECT_EQ(json["tiles"]["bytes"].get<int>() + json["upstream_path"]["bytes"].get<int>(), json["tensor_bytes"]);
  EXPECT_EQ(std::count_if(json["tensors"].begin(), json["tensors"].end(),
                          [](const auto& tensor) { return tensor["path"] == "tiles"; }),
            json["tiles"]["tensors"].get<int>());
  double share = 0;
  for (const auto& type : json["types"]) share += type["share_percent"].get<double>();
  EXPECT_NEAR(share, 100, 1e-6);
}

TEST(Inspect, ReplacesTextThatIsNotUtf8InJson) {
  const gguf::TestFolder folder;
  folder.put("m.gguf", gguf::TestFile().string("general.name", "caf\xe9").tensor("a", {4}).bytes());
  const Outcome run = cli_test::run({"inspect", "--json", folder.at("m.gguf")});
  ASSERT_EQ(run.exit_code, 0) << run.all();
  EXPECT_EQ(nlohmann::json::parse(run.all())["name"], "caf\xef\xbf\xbd");
}

TEST(Inspect, SaysWhyAFileCannotBeRun) {
  const gguf::TestFolder folder;
  folder.put("m.gguf", gguf::TestFile().string("general.name", "\x1b[31mred").tensor("a", {4}).bytes());
  const Outcome run = cli_test::run({"inspect", folder.at("m.gguf")});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.all(), HasSubstr("This file cannot be run: unusable model: metadata 'general.architecture'"));
  EXPECT_THAT(run.all(), Not(HasSubstr("\x1b")));
}

TEST(Inspect, RefusesInOneSentence) {
  const gguf::TestFolder folder;
  folder.put("text.txt", "hello, this is a text\n");
  folder.put("cut.gguf", gguf::file_text(model_path("kazeia-mini-qwen3-q4_0.gguf")).substr(0, 100000));
  for (const auto& [name, reason] :
       std::initializer_list<std::pair<const char*, const char*>>{{"absent.gguf", "no file at"},
                                                                  {"", "directory"},
                                                                  {"text.txt", "not a GGUF file"},
                                                                  {"cut.gguf", "at byte"}}) {
    const Outcome run = cli_test::run({"inspect", folder.at(name)});
    EXPECT_EQ(run.exit_code, 3) << run.all();
    EXPECT_THAT(run.all(), AllOf(::testing::StartsWith("kazeia: "), HasSubstr(reason)));
    EXPECT_EQ(run.error_lines(), 1U) << run.all();
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace kazeia::cli
