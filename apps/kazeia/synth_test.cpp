#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/test_file.h"
#include "program_test.h"

namespace kazeia::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Synth, WritesAModelThatInspectUnderstands) {
  const gguf::TestFolder folder;
  const std::string path = folder.at("m.gguf");
  const ProgramRun written = run_program("synth qwen3-0.6b " + path);
  ASSERT_EQ(written.exit_code, 0) << written.output;
  EXPECT_THAT(written.output, HasSubstr("361.4 MiB"));
  EXPECT_THAT(written.output, Not(HasSubstr("\r"))) << "progress belongs to a terminal";
  const ProgramRun inspected = run_program("inspect " + path);
  EXPECT_THAT(inspected.output, AllOf(HasSubstr("28 (28 attention)"), HasSubstr("151936 tokens")));
  EXPECT_THAT(inspected.output, Not(HasSubstr("cannot be run")));

  const ProgramRun again = run_program("synth qwen3-0.6b " + path);
  EXPECT_EQ(again.exit_code, 6);
  EXPECT_THAT(again.output, HasSubstr("exists already. Use --force to replace it."));
}

TEST(Synth, ListsTheShapesItKnows) {
  const gguf::TestFolder folder;
  const ProgramRun run = run_program("synth qwen9 " + folder.at("m.gguf"));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, AllOf(HasSubstr("no shape 'qwen9'"), HasSubstr("qwen3.5-4b")));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, LeavesNothingBehindWhenTheDiskIsFull) {
  const gguf::TestFolder folder;
  // A file-size limit fails the write like a full disk does; the signal that comes with it is ignored.
  const ProgramRun run = run_program("synth qwen3-0.6b " + folder.at("m.gguf"), "trap '' XFSZ; ulimit -f 20000;");
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.output, AllOf(HasSubstr("no space left to write"), HasSubstr("nothing was left behind")));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, LeavesNothingBehindWhenInterrupted) {
  const gguf::TestFolder folder;
  const ProgramRun run = run_program("synth qwen3-4b " + folder.at("m.gguf"), "exec timeout -s INT 1");
  EXPECT_THAT(run.output, HasSubstr("stopped"));
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, NamesAFolderThatDoesNotExist) {
  const gguf::TestFolder folder;
  const ProgramRun run = run_program("synth qwen3-0.6b " + folder.at("no/such/m.gguf"));
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.output, HasSubstr("Choose a folder that exists"));
}

}  // namespace
}  // namespace kazeia::cli
