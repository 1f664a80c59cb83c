#include "bench/steps.h"

#include <map>

#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

TEST(Steps, AreWordsWithNumbers) {
  const auto prefill = parse_step("prefill:512");
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->name, "prefill_512");
  const auto decode = parse_step("decode:4096:32");
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->name, "decode_4096");
  EXPECT_EQ(decode->tokens, 32);
  for (const char* bad : {"", "prefill", "prefill:", "prefill:0", "prefill:-1", "decode:1", "decode:x:2", "load:1"}) {
    EXPECT_FALSE(parse_step(bad)) << bad;
  }
}

TEST(Steps, MeasurePrefillFromEmptyAndDecodeAtItsDepth) {
  std::int64_t count = 0;
  std::vector<std::int64_t> prefill_starts;
  std::map<std::int64_t, int> decodes;
  const Subject subject{[&] { count = 0; }, [&] { return count; },
                        [&](const std::vector<std::int32_t>& prompt) {
                          prefill_starts.push_back(count);
                          count += static_cast<std::int64_t>(prompt.size());
                          return true;
                        },
                        [&](std::int32_t) {
                          ++decodes[count++];
                          return true;
                        }};
  std::vector<std::string> names;
  ASSERT_TRUE(run_steps(subject, {*parse_step("prefill:128"), *parse_step("decode:700:4")},
                        [&](const std::string& name, double rate) {
                          names.push_back(name);
                          EXPECT_GT(rate, 0);
                        }));
  EXPECT_EQ(names, (std::vector<std::string>{"prefill_128", "decode_700"}));
  EXPECT_EQ(prefill_starts, (std::vector<std::int64_t>{0, 0, 128, 640}));  // warm-up, step, two pieces to the depth
  EXPECT_EQ(count, 704);
}

TEST(Steps, StopAtTheFirstFailure) {
  const Subject subject{[] {}, [] { return std::int64_t{0}; }, [](const std::vector<std::int32_t>&) { return false; },
                        [](std::int32_t) { return true; }};
  EXPECT_FALSE(run_steps(subject, {*parse_step("prefill:8")}, [](const std::string&, double) { FAIL(); }));
}

}  // namespace
}  // namespace kazeia::bench
