#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_program.h"
#include "gguf/test_file.h"

namespace kazeia::cli {
namespace {

using cli_test::model_path;
using cli_test::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Synth, WritesAModelThatInspectUnderstands) {
  const gguf::TestFolder folder;
  const std::string path = folder.at("m.gguf");
  const Outcome written = cli_test::run({"synth", "qwen3-0.6b", path});
  ASSERT_EQ(written.exit_code, 0) << written.all();
  EXPECT_THAT(written.all(), HasSubstr("361.4 MiB"));
  EXPECT_THAT(written.all(), Not(HasSubstr("\r"))) << "progress belongs to a terminal";
  const Outcome inspected = cli_test::run({"inspect", path});
  EXPECT_THAT(inspected.all(), AllOf(HasSubstr("28 (28 attention)"), HasSubstr("151936 tokens")));
  EXPECT_THAT(inspected.all(), Not(HasSubstr("cannot be run")));

  const Outcome again = cli_test::run({"synth", "qwen3-0.6b", path});
  EXPECT_EQ(again.exit_code, 6);
  EXPECT_THAT(again.all(), HasSubstr("exists already. Use --force to replace it."));
}

TEST(Synth, ListsTheShapesItKnows) {
  const gguf::TestFolder folder;
  const Outcome run = cli_test::run({"synth", "qwen9", folder.at("m.gguf")});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.all(), AllOf(HasSubstr("no shape 'qwen9'"), HasSubstr("qwen3.5-4b")));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, LeavesNothingBehindWhenTheDiskIsFull) {
  const gguf::TestFolder folder;
  // A file-size limit fails the write like a full disk does.
  const Outcome run =
      cli_test::run({"synth", "qwen3-0.6b", folder.at("m.gguf")}, {.file_size_limit = 20 * 1024 * 1024});
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.all(), AllOf(HasSubstr("no space left to write"), HasSubstr("nothing was left behind")));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, LeavesNothingBehindWhenInterrupted) {
  const gguf::TestFolder folder;
  const Outcome run =
      cli_test::run({"synth", "qwen3-4b", folder.at("m.gguf")}, {.interrupt_after = std::chrono::seconds(1)});
  EXPECT_THAT(run.all(), HasSubstr("stopped"));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, NamesAFolderThatDoesNotExist) {
  const gguf::TestFolder folder;
  const Outcome run = cli_test::run({"synth", "qwen3-0.6b", folder.at("no/such/m.gguf")});
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.all(), HasSubstr("Choose a folder that exists"));
}

}  // namespace
}  // namespace kazeia::cli
