#include "engine/workers.h"

#include <sys/resource.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/machine.h"
#include "engine/mini_models.h"

namespace kazeia {
namespace {

class WorkersOf : public mini::EachModel {};

// Short answers: threads that wait for each other are slow on a machine that is busy (docs/decisions/0003).
constexpr std::int64_t kTokens = 8;

int any_core() {
  for (const CoreFacts& core : read_machine().cores) {
    if (core.allowed) return core.id;
  }
  return 0;
}

TimelineOptions with_poll(int poll, int decode_threads = 2, int prefill_threads = 2) {
  TimelineOptions options = mini::small_context(256);
  options.decode_threads = decode_threads;
  options.prefill_threads = prefill_threads;
  options.poll = poll;
  return options;
}

std::string text_of(Timeline& timeline, const std::string& file) {
  const auto sampler = mini::sampler(file);
  GenerationOptions options;
  options.max_tokens = kTokens;
  return mini::answer(timeline, *sampler, file, mini::question("Count from 3 to 7."), options).text;
}

std::string text_with(const TimelineOptions& options, const std::string& file) {
  const auto timeline = mini::timeline(file, options);
  return timeline == nullptr ? "no timeline" : text_of(*timeline, file);
}

double process_cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

TEST_P(WorkersOf, WritesTheSameWhateverThreadsComputeIt) {
  const std::string expected = text_with(mini::small_context(256), GetParam());
  EXPECT_FALSE(expected.empty());
  for (const int poll : {0, 50}) {
    EXPECT_EQ(text_with(with_poll(poll, 1, 1), GetParam()), expected) << poll;
    EXPECT_EQ(text_with(with_poll(poll, 2, 2), GetParam()), expected) << poll;
  }
  EXPECT_EQ(text_with(with_poll(0, 1, 2), GetParam()), expected);
  EXPECT_EQ(text_with(with_poll(0, 2, 1), GetParam()), expected);
  TimelineOptions on_one_core = mini::small_context(256);
  on_one_core.cores = {any_core()};
  EXPECT_EQ(text_with(on_one_core, GetParam()), expected);
  on_one_core.poll = 0;
  EXPECT_EQ(text_with(on_one_core, GetParam()), expected);
}

TEST_P(WorkersOf, KeepsItsThreadsThroughResetsAndRestores) {
  const auto timeline = mini::timeline(GetParam(), with_poll(10));
  const std::string expected = text_of(*timeline, GetParam());
  for (int i = 0; i < 3; ++i) {
    timeline->rest();
    EXPECT_EQ(text_of(*timeline, GetParam()), expected);
  }
  std::vector<std::byte> recurrent;
  ASSERT_TRUE(timeline
                  ->copy_recurrent([&](std::span<const std::byte> bytes) -> Status {
                    recurrent.insert(recurrent.end(), bytes.begin(), bytes.end());
                    return {};
                  })
                  .ok());
  const Tokens before = timeline->tokens();
  const auto layout = timeline->state_layout();
  ASSERT_TRUE(layout.ok());
  ASSERT_TRUE(timeline->restore(before, before.size(), {}, recurrent, *layout).ok());
  EXPECT_TRUE(timeline->decode(before.back()).ok());
}

TEST_P(WorkersOf, MayHaveManyTimelinesOneAfterTheOtherAndTwoAtOnce) {
  const std::string expected = text_with(mini::small_context(256), GetParam());
  for (int i = 0; i < 10; ++i) {
    const auto unused = mini::timeline(GetParam(), with_poll(0, 1 + i % 2, 2));
    ASSERT_NE(unused, nullptr);
  }
  const auto first = mini::timeline(GetParam(), with_poll(0));
  const auto second = mini::timeline(GetParam(), with_poll(0));
  EXPECT_EQ(text_of(*first, GetParam()), expected);
  EXPECT_EQ(text_of(*second, GetParam()), expected);
  EXPECT_EQ(text_of(*first, GetParam()), expected);
  const auto third = mini::timeline(GetParam(), with_poll(0, 1, 1));
  std::string meanwhile;
  std::thread other([&] { meanwhile = text_of(*third, GetParam()); });
  EXPECT_EQ(text_of(*first, GetParam()), expected);
  other.join();
  EXPECT_EQ(meanwhile, expected);
}

TEST(Workers, UseNoCpuWhileNobodyAsks) {
  const auto timeline = mini::timeline(mini::kDense, with_poll(100));
  text_of(*timeline, mini::kDense);
  timeline->rest();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until they have noticed
  const double before = process_cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_LT(process_cpu_ms() - before, 60);  // one that looked out would have used 250
}

TEST(Workers, MayBeMovedToAnotherThreadBetweenTwoGraphs) {
  const auto timeline = mini::timeline(mini::kHybrid, with_poll(0));
  const std::string expected = text_of(*timeline, mini::kHybrid);
  std::string elsewhere;
  std::thread([&] { elsewhere = text_of(*timeline, mini::kHybrid); }).join();
  EXPECT_EQ(elsewhere, expected);
}

TEST(TimelineCreate, RefusesCoresAndPollsThatCannotBe) {
  const auto refusal = [](auto change) {
    TimelineOptions options = mini::small_context(256);
    change(options);
    const auto result = Timeline::create(mini::model(mini::kDense), options);
    if (result.ok()) return std::string("accepted");
    EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
    return result.error().message();
  };
  EXPECT_EQ(refusal([](auto& o) { o.poll = 101; }), "poll is 101, must be between 0 and 100");
  EXPECT_EQ(refusal([](auto& o) { o.cores = {1022}; }), "core 1022 is not one that this process may use");
  const std::string one = std::to_string(any_core());
  EXPECT_EQ(refusal([](auto& o) {
              o.cores = {any_core()};
              o.decode_threads = 2;
            }),
            "2 threads do not fit on the cores " + one);
}

TEST(TimelineCreate, PlansAsManyThreadsAsThereAreCoresGiven) {
  TimelineOptions options;
  options.context_tokens = 256;
  options.cores = {any_core()};
  const auto timeline = mini::timeline(mini::kDense, options);
  EXPECT_EQ(timeline->decode_threads(), 1);
  EXPECT_EQ(timeline->prefill_threads(), 1);
}

TEST_P(WorkersOf, AnswersWithoutFlashAttention) {
  TimelineOptions options = mini::small_context(256);
  options.flash_attention = false;
  EXPECT_EQ(text_with(options, GetParam()), text_with(mini::small_context(256), GetParam()));
}

TEST_P(WorkersOf, AnswersFromWeightsOnSmallPages) {
  ModelOptions options;
  options.huge_pages = false;
  auto loaded = Model::load(mini::path(GetParam()), options);
  ASSERT_TRUE(loaded.ok());
  const auto timeline = Timeline::create(*loaded, mini::small_context(256));
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(text_of(**timeline, GetParam()), text_with(mini::small_context(256), GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Engine, WorkersOf, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

}  // namespace
}  // namespace kazeia
