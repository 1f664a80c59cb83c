#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kazeia {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kUsage, "the number is odd", "Give an even one");
  return value / 2;
}

Result<std::string> quarter(int value) {
  KAZEIA_ASSIGN(const int once, half(value));
  KAZEIA_ASSIGN(const int twice, half(once));
  return std::to_string(twice);
}

Status check_even(int value, bool& reached) {
  KAZEIA_TRY(half(value));
  reached = true;
  return {};
}

TEST(Result, HoldsTheValueOrTheError) {
  EXPECT_EQ(*half(8), 4);
  ASSERT_FALSE(half(7).ok());
  EXPECT_EQ(half(7).error().message(), "the number is odd");
  EXPECT_FALSE(static_cast<bool>(half(7)));
}

TEST(Result, AssignReturnsTheFirstErrorOnTheWay) {
  EXPECT_EQ(*quarter(8), "2");
  EXPECT_FALSE(quarter(7).ok());
  EXPECT_FALSE(quarter(6).ok());
}

TEST(Result, TryStopsTheFunctionOnAnError) {
  bool reached = false;
  EXPECT_FALSE(check_even(3, reached).ok());
  EXPECT_FALSE(reached);
  EXPECT_TRUE(check_even(4, reached).ok());
  EXPECT_TRUE(reached);
}

TEST(Result, GivesUpAMoveOnlyValue) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

TEST(Status, IsSuccessByDefault) {
  EXPECT_TRUE(Status().ok());
  const Status failed = Error(ErrorCode::kEngine, "the device is gone");
  EXPECT_EQ(failed.error().code(), ErrorCode::kEngine);
}

TEST(Error, SentenceEndsWithOnePeriodAndTheNextStep) {
  EXPECT_EQ(Error(ErrorCode::kFile, "no file at 'a'", "Check the path").sentence(), "no file at 'a'. Check the path.");
  EXPECT_EQ(Error(ErrorCode::kFile, "no file at 'a'").sentence(), "no file at 'a'.");
  EXPECT_EQ(Error(ErrorCode::kFile, "no file at 'a'", "Check the path.").sentence(), "no file at 'a'. Check the path.");
}

TEST(Error, WithinAddsTheContextAndKeepsTheRest) {
  const Error error = Error(ErrorCode::kFile, "bad magic", "Get it again").within("a.gguf");
  EXPECT_EQ(error.message(), "a.gguf: bad magic");
  EXPECT_EQ(error.next(), "Get it again");
  EXPECT_EQ(error.code(), ErrorCode::kFile);
}

TEST(Error, ExitCodesAreTheDocumentedOnes) {
  EXPECT_EQ(Error(ErrorCode::kUsage, "").exit_code(), 2);
  EXPECT_EQ(Error(ErrorCode::kFile, "").exit_code(), 3);
  EXPECT_EQ(Error(ErrorCode::kUnsupported, "").exit_code(), 4);
  EXPECT_EQ(Error(ErrorCode::kTooLarge, "").exit_code(), 5);
  EXPECT_EQ(Error(ErrorCode::kWrite, "").exit_code(), 6);
  EXPECT_EQ(Error(ErrorCode::kEngine, "").exit_code(), 7);
  EXPECT_EQ(Error(ErrorCode::kCancelled, "").exit_code(), 130);
}

TEST(Error, GroupsHaveStableNames) {
  EXPECT_EQ(error_code_name(ErrorCode::kTooLarge), "too_large");
  EXPECT_EQ(error_code_name(ErrorCode::kCancelled), "cancelled");
}

}  // namespace
}  // namespace kazeia
