#include "bench/child.h"

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

TEST(Child, IsReadLineByLine) {
  std::vector<std::string> lines;
  const Status status =
      run_child({"/bin/sh", "-c", "echo one; echo two"}, [&](std::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
}

TEST(Child, ReportsItsExitCodeAndItsSignal) {
  const Status code = run_child({"/bin/sh", "-c", "exit 3"}, [](std::string_view) {});
  ASSERT_FALSE(code.ok());
  EXPECT_NE(code.error().message().find("exit code 3"), std::string::npos);
  const Status signal = run_child({"/bin/sh", "-c", "kill -9 $$"}, [](std::string_view) {});
  ASSERT_FALSE(signal.ok());
  EXPECT_NE(signal.error().message().find("signal 9"), std::string::npos);
}

TEST(Child, ThatDoesNotExistIsAFileError) {
  const Status status = run_child({"/nowhere/program"}, [](std::string_view) {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kFile);
}

TEST(Child, IsEndedByACancel) {
  CancelFlag cancel;
  const Status status = run_child(
      {"/bin/sh", "-c", "echo started; exec sleep 60"}, [&](std::string_view) { cancel.request(); }, &cancel);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace kazeia::bench
