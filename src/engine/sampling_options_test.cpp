#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "engine/sampling.h"

namespace kazeia {
namespace {

std::string refusal(const std::function<void(SamplingOptions&)>& change) {
  SamplingOptions options;
  change(options);
  const Status status = validate(options);
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.error().code(), ErrorCode::kUsage);
  return status.error().message();
}

TEST(SamplingOptions, DefaultsAreValid) {
  EXPECT_TRUE(validate(SamplingOptions{}).ok());
}

TEST(SamplingOptions, RefusesEachValueOutOfRangeWithItsNameAndRange) {
  EXPECT_EQ(refusal([](auto& o) { o.temperature = 9; }), "temperature is 9, must be between 0 and 5");
  EXPECT_EQ(refusal([](auto& o) { o.temperature = -0.1f; }), "temperature is -0.1, must be between 0 and 5");
  EXPECT_EQ(refusal([](auto& o) { o.top_k = -1; }), "top_k is -1, must be between 0 and 1000000");
  EXPECT_EQ(refusal([](auto& o) { o.top_k = 1000001; }), "top_k is 1000001, must be between 0 and 1000000");
  EXPECT_EQ(refusal([](auto& o) { o.top_p = 0; }), "top_p is 0, must be above 0 and at most 1");
  EXPECT_EQ(refusal([](auto& o) { o.top_p = 1.5f; }), "top_p is 1.5, must be above 0 and at most 1");
  EXPECT_EQ(refusal([](auto& o) { o.min_p = -1; }), "min_p is -1, must be between 0 and 1");
  EXPECT_EQ(refusal([](auto& o) { o.min_p = 2; }), "min_p is 2, must be between 0 and 1");
  EXPECT_EQ(refusal([](auto& o) { o.repeat_penalty = 0.25f; }), "repeat_penalty is 0.25, must be between 0.5 and 3");
  EXPECT_EQ(refusal([](auto& o) { o.repeat_penalty = 4; }), "repeat_penalty is 4, must be between 0.5 and 3");
  EXPECT_EQ(refusal([](auto& o) { o.presence_penalty = 3; }), "presence_penalty is 3, must be between -2 and 2");
  EXPECT_EQ(refusal([](auto& o) { o.penalty_window = -1; }), "penalty_window is -1, must be between 0 and 65536");
  EXPECT_EQ(refusal([](auto& o) { o.penalty_window = 65537; }), "penalty_window is 65537, must be between 0 and 65536");
}

TEST(SamplingOptions, RefusesWhatIsNotANumber) {
  const float nan = std::nanf("");
  EXPECT_NE(refusal([=](auto& o) { o.temperature = nan; }), "accepted");
  EXPECT_NE(refusal([=](auto& o) { o.top_p = nan; }), "accepted");
  EXPECT_NE(refusal([=](auto& o) { o.min_p = nan; }), "accepted");
  EXPECT_NE(refusal([=](auto& o) { o.repeat_penalty = nan; }), "accepted");
  EXPECT_NE(refusal([=](auto& o) { o.presence_penalty = nan; }), "accepted");
}

TEST(SamplingOptions, AcceptsTheEndsOfEveryRange) {
  EXPECT_EQ(refusal([](auto& o) { o.temperature = 5; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.top_k = 0; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.top_p = 1; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.min_p = 1; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.repeat_penalty = 0.5f; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.presence_penalty = -2; }), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.penalty_window = 0; }), "accepted");
}

TEST(SamplingOptions, RefusesTwoConstraintsAtOnce) {
  EXPECT_EQ(refusal([](auto& o) {
              o.grammar = "root ::= \"a\"";
              o.json_schema = "{}";
            }),
            "a grammar and a JSON schema cannot be used together");
}

}  // namespace
}  // namespace kazeia
