#include "bench/child_line.h"

#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

std::optional<ChildLine> heard(const std::function<void()>& tell) {
  ::testing::internal::CaptureStdout();
  tell();
  std::string line = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(line.ends_with("\n"));
  line.pop_back();
  EXPECT_EQ(line.find('\n'), std::string::npos);
  return parse_child_line(line);
}

TEST(ChildLine, IsHeardAsItWasTold) {
  const auto begin = heard([] { tell_begin("decode_0", 32); });
  ASSERT_TRUE(begin);
  EXPECT_EQ(begin->kind, ChildLine::Kind::kBegin);
  EXPECT_EQ(begin->name, "decode_0");
  EXPECT_EQ(begin->tokens, 32);
  const auto sample = heard([] { tell_sample("decode_0", 12.3456789); });
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->kind, ChildLine::Kind::kSample);
  EXPECT_EQ(sample->value, 12.3456789);
  const auto fact = heard([] { tell_fact("route_note", "no \"driver\"\nhere"); });
  ASSERT_TRUE(fact);
  EXPECT_EQ(fact->kind, ChildLine::Kind::kFact);
  EXPECT_EQ(fact->name, "route_note");
  EXPECT_EQ(fact->text, "no \"driver\"\nhere");
}

TEST(ChildLine, LeavesWhatElseAChildWritesAlone) {
  for (const char* other : {"", "loading...", "{}", "[1]", R"({"name":"x"})", R"({"name":1,"value":2})",
                            R"({"name":"x","value":"y"})", R"({"fact":"x"})", R"({"begin":3})", "{\"name\""}) {
    EXPECT_FALSE(parse_child_line(other)) << other;
  }
}

}  // namespace
}  // namespace kazeia::bench
