// The mini models answer a narrow set of dialogues right or wrong: `kazeia quality`, end to end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Finished {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

Finished quality(const std::string& model, const std::string& dialogues, const std::string& options) {
  const std::string command = std::string(std::getenv("KAZEIA_PROGRAM")) + " quality '" + std::getenv("KAZEIA_MODELS") +
                              "/" + model + "' --dialogues '" + dialogues + "' --threads 1 " + options + " 2>&1";
  Finished run;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) run.output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

constexpr const char* kDialogues = KAZEIA_VECTORS "/dialogues.jsonl";

void expect_all_of_200(const std::string& model) {
  const Finished run = quality(model, kDialogues, "--limit 200 --json");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const Json json = Json::parse(run.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << run.output;
  EXPECT_EQ(json["asked"], 200);
  EXPECT_EQ(json["exact"], 200) << json["mismatches"].dump(2);
  EXPECT_GT(json["recall_asked"], 50);
  EXPECT_EQ(json["recall_exact"], json["recall_asked"]);
}

TEST(Quality, HybridMiniModelAnswers200DialoguesExactly) {
  expect_all_of_200("kazeia-mini-qwen35-q4_0.gguf");
}

TEST(Quality, DenseMiniModelAnswers200DialoguesExactly) {
  expect_all_of_200("kazeia-mini-qwen3-q4_0.gguf");
}

class QualityOnOwnDialogues : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-quality-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& text) {
    const std::string path = (folder_ / "dialogues.jsonl").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(QualityOnOwnDialogues, ShowsAWrongAnswerAndFailsBelowTheNumberAskedFor) {
  const std::string path = write(R"({"messages":[{"role":"user","content":"What is 2 + 3?"}],"expect":"2 + 3 = 6."})"
                                 "\n"
                                 R"({"messages":[{"role":"user","content":"What is 2 + 2?"}],"expect":"2 + 2 = 4."})"
                                 "\n");
  const Finished run = quality("kazeia-mini-qwen35-q4_0.gguf", path, "--at-least 2");
  EXPECT_EQ(run.exit_code, 7) << run.output;
  EXPECT_THAT(run.output, HasSubstr("1 of 2 dialogues answered exactly"));
  EXPECT_THAT(run.output, HasSubstr("answered: 2 + 3 = 5."));
  EXPECT_EQ(quality("kazeia-mini-qwen35-q4_0.gguf", path, "--at-least 1").exit_code, 0);
}

TEST_F(QualityOnOwnDialogues, NamesTheLineThatIsNoDialogue) {
  const std::string path =
      write(R"({"messages":[{"role":"user","content":"Hello!"}],"expect":"Hello! How can I help you?"})"
            "\n"
            R"({"messages":[{"role":"assistant","content":"Hello!"}],"expect":"x"})"
            "\n");
  const Finished run = quality("kazeia-mini-qwen35-q4_0.gguf", path, "");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_THAT(run.output, HasSubstr("line 2"));
  EXPECT_EQ(quality("kazeia-mini-qwen35-q4_0.gguf", write(""), "").exit_code, 3);
  EXPECT_EQ(quality("kazeia-mini-qwen35-q4_0.gguf", "/nonexistent", "").exit_code, 3);
}

}  // namespace
