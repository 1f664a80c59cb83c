// A pool of threads and an NPU beside it: its graphs are split between the two, and when it fails the state may get a
// context of its own.
#include <string>

#include "engine/npu_models.h"

namespace kazeia {
namespace {

std::string answer_to(Timeline& timeline, const std::string& file, const std::string& prompt) {
  const auto sampler = mini::sampler(file);
  GenerationOptions options;
  options.max_tokens = 12;
  return mini::answer(timeline, *sampler, file, prompt, options).text;
}

TEST(WorkersBesideAnNpu, GoOnWithANewContextWhenTheDeviceFallsSilent) {
  setenv("KAZEIA_NPU_DEADLINE_MS", "700", 1);
  setenv("KAZEIA_NPU_START_DEADLINE_MS", "1500", 1);
  const std::string file = mini::kHybrid;
  std::string prompt;
  for (const char* number : {"42", "17", "99", "63"}) {
    prompt += mini::history(
        {{std::string("My number is ") + number + ".", std::string("I noted the number ") + number + "."}});
  }
  prompt += mini::question("What is my number?");
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 64;
  const std::string expected = answer_to(*mini::timeline(file, options), file, prompt);

  options.decode_threads = 1;
  options.prefill_threads = 2;
  options.poll = 0;
  const auto timeline = mini::npu_timeline(file, options);
  ASSERT_NE(timeline, nullptr);
  EXPECT_EQ(answer_to(*timeline, file, prompt), expected);
  EXPECT_GT(timeline->npu_use().prefill_tokens, 0U);
  timeline->rest();
  mini::set_fault("hang");
  EXPECT_EQ(answer_to(*timeline, file, prompt), expected);
  EXPECT_NE(timeline->npu_use().failure, "");
  EXPECT_EQ(answer_to(*timeline, file, prompt), expected);
}

}  // namespace
}  // namespace kazeia
