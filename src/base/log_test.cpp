#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kazeia {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view message) {
      levels_.push_back(level);
      messages_.emplace_back(message);
    });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::kWarning);
  }
  std::vector<LogLevel> levels_;
  std::vector<std::string> messages_;
};

TEST_F(Log, DropsWhatIsBelowTheLevelBeforeTheSinkSeesIt) {
  log(LogLevel::kInfo, "quiet");
  log(LogLevel::kWarning, "heard");
  EXPECT_THAT(messages_, ElementsAre("heard"));
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "now heard");
  EXPECT_THAT(levels_, ElementsAre(LogLevel::kWarning, LogLevel::kDebug));
}

TEST_F(Log, TakesOffTheLineEndThatUpstreamAdds) {
  log(LogLevel::kError, "from upstream\n\n");
  EXPECT_THAT(messages_, ElementsAre("from upstream"));
}

TEST_F(Log, FromManyThreadsLosesNothing) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log(LogLevel::kError, "x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(messages_.size(), 400u);
}

TEST_F(Log, WithoutASinkGoesToStandardError) {
  set_log_sink({});
  ::testing::internal::CaptureStderr();
  log(LogLevel::kError, "the disk is gone");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "kazeia: the disk is gone\n");
  EXPECT_THAT(messages_, IsEmpty());
}

}  // namespace
}  // namespace kazeia
