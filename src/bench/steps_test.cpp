#include "bench/steps.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kazeia::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// A state that only counts, and remembers what it was asked for.
struct FakeSubject {
  std::int64_t count = 0;
  Deepened can_deepen = Deepened::kDone;
  std::vector<std::pair<std::int64_t, std::int64_t>> prefills;  // from, to
  std::vector<std::pair<std::int64_t, std::int64_t>> deepenings;
  std::vector<std::int64_t> decodes;  // depth of each token
  std::vector<std::string> reported;

  bool run(const std::vector<const char*>& words) {
    std::vector<Step> steps;
    for (const char* word : words) steps.push_back(*parse_step(word));
    const Subject subject{[&] { count = 0; }, [&] { return count; },
                          [&](const std::vector<std::int32_t>& prompt) {
                            for (std::size_t i = 0; i < prompt.size(); ++i) {
                              EXPECT_EQ(prompt[i], nth_token(count + static_cast<std::int64_t>(i)));
                            }
                            prefills.emplace_back(count, count + static_cast<std::int64_t>(prompt.size()));
                            count = prefills.back().second;
                            return true;
                          },
                          [&](std::int32_t token) {
                            EXPECT_EQ(token, nth_token(count));
                            decodes.push_back(count++);
                            return true;
                          },
                          [&](std::int64_t depth) {
                            EXPECT_GT(depth, count);
                            EXPECT_GT(count, 0);
                            deepenings.emplace_back(count, depth);
                            if (can_deepen == Deepened::kDone) count = depth;
                            return can_deepen;
                          }};
    StepRunner runner(subject);
    const bool ok = runner.run(steps, [&](const std::string& name, double rate) {
      reported.push_back(name);
      EXPECT_GT(rate, 0);
    });
    depth_made = runner.depth_made();
    // The warm-up's.
    prefills.erase(prefills.begin());
    decodes.erase(decodes.begin(), decodes.begin() + 2);
    return ok;
  }
  std::string depth_made;
};

TEST(Steps, AreWordsWithNumbers) {
  const auto prefill = parse_step("prefill:512");
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->name, "prefill_512");
  EXPECT_EQ(prefill->depth, 0);
  const auto behind = parse_step("prefill:512@4096");
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->name, "prefill_512_at_4096");
  EXPECT_EQ(behind->depth, 4096);
  EXPECT_EQ(behind->tokens, 512);
  const auto decode = parse_step("decode:4096:32");
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->name, "decode_4096");
  EXPECT_EQ(decode->tokens, 32);
  for (const char* bad : {"", "prefill", "prefill:", "prefill:0", "prefill:-1", "prefill:1@", "prefill:1@0",
                          "prefill:@1", "prefill:1@x", "decode:1", "decode:x:2", "load:1"}) {
    EXPECT_FALSE(parse_step(bad)) << bad;
  }
}

TEST(Steps, MeasurePrefillFromEmptyAndDecodeAtItsDepth) {
  FakeSubject subject;
  ASSERT_TRUE(subject.run({"prefill:128", "decode:700:4"}));
  EXPECT_THAT(subject.reported, ElementsAre("prefill_128", "decode_700"));
  EXPECT_THAT(subject.prefills, ElementsAre(Pair(0, 128), Pair(128, 640), Pair(640, 700)));
  EXPECT_THAT(subject.decodes, ElementsAre(700, 701, 702, 703));
  EXPECT_THAT(subject.deepenings, IsEmpty());
  EXPECT_EQ(subject.depth_made, "");
}

TEST(Steps, ReadDepthsUpTo1024AndRepeatWhatIsThereBeyond) {
  FakeSubject subject;
  ASSERT_TRUE(subject.run({"decode:0:2", "decode:1024:2", "decode:4096:2", "decode:32768:2"}));
  EXPECT_THAT(subject.prefills, ElementsAre(Pair(0, 1), Pair(3, 515), Pair(515, 1024)));
  EXPECT_THAT(subject.deepenings, ElementsAre(Pair(1026, 4096), Pair(4098, 32768)));
  EXPECT_THAT(subject.decodes, ElementsAre(1, 2, 1024, 1025, 4096, 4097, 32768, 32769));
  EXPECT_EQ(subject.depth_made, kRepeatedRows);
}

TEST(Steps, ReadALittleInFrontOfRepeatedRows) {
  FakeSubject subject;
  ASSERT_TRUE(subject.run({"prefill:2048", "prefill:512@1025", "prefill:512@4096"}));
  EXPECT_THAT(subject.reported, ElementsAre("prefill_2048", "prefill_512_at_1025", "prefill_512_at_4096"));
  EXPECT_THAT(subject.prefills, ElementsAre(Pair(0, 2048), Pair(0, 64), Pair(1025, 1537), Pair(4096, 4608)));
  EXPECT_THAT(subject.deepenings, ElementsAre(Pair(64, 1025), Pair(1537, 4096)));
}

TEST(Steps, ReadADepthWhoseRowsCannotBeRepeated) {
  FakeSubject subject;
  subject.can_deepen = Deepened::kUnsupported;
  ASSERT_TRUE(subject.run({"decode:1200:1"}));
  EXPECT_THAT(subject.prefills, ElementsAre(Pair(34, 64), Pair(64, 576), Pair(576, 1088), Pair(1088, 1200)));
  EXPECT_THAT(subject.decodes, ElementsAre(1200));
  EXPECT_EQ(subject.depth_made, kReadRows);
}

TEST(Steps, StopAtTheFirstFailure) {
  const Subject subject{[] {}, [] { return std::int64_t{0}; }, [](const std::vector<std::int32_t>&) { return false; },
                        [](std::int32_t) { return true; }, [](std::int64_t) { return Deepened::kDone; }};
  EXPECT_FALSE(StepRunner(subject).run({*parse_step("prefill:8")}, [](const std::string&, double) { FAIL(); }));

  FakeSubject deep;
  deep.can_deepen = Deepened::kFailed;
  EXPECT_FALSE(deep.run({"decode:4096:1"}));
  EXPECT_THAT(deep.reported, IsEmpty());
}

}  // namespace
}  // namespace kazeia::bench
