// Whatever the device does, at whatever moment: the user gets the answer that the CPU would give.
#include <array>
#include <string>
#include <tuple>

#include "engine/npu_models.h"
#include "engine/route.h"

namespace kazeia {
namespace {

enum class Moment { kLoad, kFirstBatch, kMiddleOfAPrompt, kBetweenTurns };

struct Fault {
  const char* name;  // of this cell
  const char* set;   // of the emulated DSP
};

constexpr std::array<Fault, 10> kFaults = {{{"Error", "error"},
                                            {"WriteError", "write_error"},
                                            {"Hang", "hang"},
                                            {"HangInsideTheRead", "hang_read"},
                                            {"LostSession", "lost"},
                                            {"Garbage", "garbage"},
                                            {"Constant", "constant"},
                                            {"SlowStart", "slow_start"},
                                            {"OutOfMemory", "oom"},
                                            {"MappingFails", "map_error"}}};

class NpuFault : public testing::TestWithParam<std::tuple<Fault, Moment, const char*>> {
 protected:
  static void SetUpTestSuite() {
    // A hang is bounded by these; production waits longer.
    setenv("KAZEIA_NPU_DEADLINE_MS", "700", 1);
    setenv("KAZEIA_NPU_START_DEADLINE_MS", "1500", 1);
    setenv("KAZEIA_DSP_DELAY_MS", "200", 1);
  }
  const Fault& fault() const { return std::get<0>(GetParam()); }
  Moment moment() const { return std::get<1>(GetParam()); }
  std::string file() const { return std::get<2>(GetParam()); }
  void strike() const {
    if (fault().set == std::string("oom")) setenv("KAZEIA_DSP_MEMORY_BYTES", "1", 1);
    mini::set_fault(fault().set);
  }
};

constexpr const char* kFacts =
    "My name is Alice. Remember it, please, because later on in this conversation I am going to ask you for it.";

std::string answer_to(Timeline& timeline, Sampler& sampler, const std::string& file, const std::string& prompt,
                      const Timeline::Progress& progress = {}) {
  sampler.reset();
  const Status read = timeline.prefill(mini::tokens(file, prompt), progress);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().sentence());
  if (!read.ok()) return {};
  auto result = generate(timeline, sampler, {});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? result->text : std::string();
}

TEST_P(NpuFault, EndsInTheAnswerOfTheCpu) {
  const std::string earlier = mini::history({{"My number is 42.", "I noted the number 42."},
                                             {"My number is 17.", "I noted the number 17."},
                                             {"My number is 99.", "I noted the number 99."},
                                             {"My number is 63.", "I noted the number 63."}});
  const std::string first = earlier + mini::question(kFacts);
  const std::string second = "<|im_end|>\n" + mini::question(
                                                  "What is my number? I told it to you in an earlier "
                                                  "message of this conversation, more than once.");
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 64;
  std::string expected[2];
  {
    const auto cpu = mini::timeline(file(), options);
    const auto sampler = mini::sampler(file());
    expected[0] = answer_to(*cpu, *sampler, file(), first);
    expected[1] = answer_to(*cpu, *sampler, file(), second);
  }

  if (moment() == Moment::kLoad) strike();
  RouteOptions route;
  route.route = Route::kNpuPrefill;
  route.remember = false;
  auto loaded = load_on_route(mini::path(file()), {}, route);
  ASSERT_TRUE(loaded.ok()) << loaded.error().sentence();  // the CPU's route, if the device cannot be had
  options.npu = loaded->npu;
  auto created = Timeline::create(loaded->model, options);
  ASSERT_TRUE(created.ok()) << created.error().sentence();
  Timeline& timeline = **created;
  auto sampler = std::move(Sampler::create(loaded->model, mini::greedy())).value();

  if (moment() == Moment::kFirstBatch) strike();
  std::string actual[2];
  actual[0] = answer_to(timeline, *sampler, file(), first, [&](std::size_t done, std::size_t) {
    if (moment() == Moment::kMiddleOfAPrompt && done == 64) strike();
  });
  if (moment() == Moment::kBetweenTurns) strike();
  actual[1] = answer_to(timeline, *sampler, file(), second);

  EXPECT_EQ(actual[0], expected[0]);
  EXPECT_EQ(actual[1], expected[1]);
  EXPECT_FALSE(timeline.poisoned());
  // Memory that is already there does not run out, and a session that is open starts no more.
  const bool harmless =
      moment() != Moment::kLoad && (fault().set == std::string("slow_start") || fault().set == std::string("oom") ||
                                    fault().set == std::string("map_error"));
  if (moment() == Moment::kLoad) {
    EXPECT_EQ(loaded->note.empty(), fault().set == std::string("slow_start")) << loaded->note;
  } else if (!harmless) {
    EXPECT_NE(timeline.npu_use().failure, "");
  }
  RecordProperty("note", loaded->note);
  RecordProperty("failure", timeline.npu_use().failure);
}

std::string cell_name(const testing::TestParamInfo<NpuFault::ParamType>& info) {
  constexpr std::array<const char*, 4> kMoments = {"AtLoad", "AtTheFirstBatch", "InTheMiddleOfAPrompt", "BetweenTurns"};
  const std::string file = std::get<2>(info.param);
  return std::string(std::get<0>(info.param).name) + kMoments[static_cast<std::size_t>(std::get<1>(info.param))] +
         (file.find("qwen35") == std::string::npos ? "Dense" : "Hybrid");
}

INSTANTIATE_TEST_SUITE_P(Engine, NpuFault,
                         testing::Combine(testing::ValuesIn(kFaults),
                                          testing::Values(Moment::kLoad, Moment::kFirstBatch, Moment::kMiddleOfAPrompt,
                                                          Moment::kBetweenTurns),
                                          testing::Values(mini::kDense, mini::kHybrid)),
                         cell_name);

}  // namespace
}  // namespace kazeia
