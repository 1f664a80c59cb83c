#include "tune_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/steps.h"

namespace kazeia::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TuneFacts server(int cores) {
  TuneFacts facts;
  for (int i = 0; i < cores; ++i) {
    CoreFacts core;
    core.id = core.core_id = i;
    core.allowed = true;
    facts.machine.cores.push_back(core);
  }
  facts.machine.huge_pages = "madvise";
  facts.trained_context_tokens = 32768;
  return facts;
}

// Two prime and six performance cores, as numbered by its kernel.
TuneFacts tablet() {
  TuneFacts facts = server(8);
  for (CoreFacts& core : facts.machine.cores) {
    core.capacity = core.id >= 6 ? 1024 : 860;
    core.max_khz = core.id >= 6 ? 4'320'000 : 3'530'000;
  }
  facts.npu = true;
  return facts;
}

TunePlan planned(const TuneFacts& facts, const TuneArguments& arguments) {
  const Result<TunePlan> plan = plan_tune(arguments, facts);
  EXPECT_TRUE(plan.ok());
  return plan.ok() ? *plan : TunePlan{};
}

TunePlan planned(const TuneFacts& facts) {
  const TuneArguments usual;
  return planned(facts, usual);
}

std::vector<std::string> values(const TunePlan& plan, const std::string& setting) {
  for (const bench::SearchedSetting& one : plan.settings) {
    if (one.name == setting) return one.values;
  }
  return {"not searched"};
}

std::string why_not(const TunePlan& plan, const std::string& setting) {
  for (const LeftOut& one : plan.left_out) {
    if (one.setting == setting) return one.reason;
  }
  return "";
}

TEST(TunePlan, SearchesWhatTheMachineLeavesToChoose) {
  const TunePlan plan = planned(server(4));
  EXPECT_THAT(values(plan, "poll"), ElementsAre("0", "50", "100"));
  EXPECT_THAT(values(plan, "ubatch"), ElementsAre("128", "256", "1024"));
  EXPECT_THAT(values(plan, "flash_attention"), ElementsAre("off"));
  EXPECT_THAT(values(plan, "attention"), ElementsAre("upstream"));
  EXPECT_THAT(values(plan, "huge_pages"), ElementsAre("off"));
  EXPECT_EQ(why_not(plan, "cores"), "all cores are alike");
  EXPECT_THAT(why_not(plan, "route"), HasSubstr("NPU"));
  EXPECT_THAT(why_not(plan, "checkpoint_spacing"), HasSubstr("cut back"));
  EXPECT_NE(why_not(plan, "op placement"), "");
}

TEST(TunePlan, TriesFewerThreadsThanThereAreCores) {
  // What is there already is never tried: the threads of the machine that this runs on.
  const auto most = [](const TunePlan& plan) {
    int highest = 0;
    for (const std::string& threads : values(plan, "decode_threads")) highest = std::max(highest, std::stoi(threads));
    return highest;
  };
  EXPECT_LE(most(planned(server(4))), 3);
  EXPECT_LE(most(planned(server(64))), 63);
  EXPECT_LE(values(planned(server(64)), "decode_threads").size(), 4U);
  EXPECT_EQ(why_not(planned(server(1)), "decode_threads"), "there is one core");
}

TEST(TunePlan, TriesTheFastClassesOfCores) {
  EXPECT_THAT(values(planned(tablet()), "cores"), ElementsAre("6-7"));
  TuneFacts three = tablet();
  three.machine.cores[0].capacity = three.machine.cores[1].capacity = 300;
  EXPECT_THAT(values(planned(three), "cores"), ElementsAre("6-7", "2-7"));
  three.machine.cores[7].allowed = false;
  EXPECT_THAT(values(planned(three), "cores"), ElementsAre("2-6"));
}

TEST(TunePlan, SearchesTheRouteWithAnNpuOnly) {
  EXPECT_THAT(values(planned(tablet()), "route"), ElementsAre("cpu"));
  TuneFacts broken = tablet();
  broken.npu = false;
  broken.npu_note = "the NPU failed its self-check";
  const TunePlan plan = planned(broken);
  EXPECT_THAT(values(plan, "route"), ElementsAre("not searched"));
  EXPECT_EQ(why_not(plan, "route"), "the NPU failed its self-check");
  EXPECT_EQ(why_not(plan, "npu_min_width"), "the NPU failed its self-check");
}

TEST(TunePlan, ChoosesACoarserCacheOnlyIfToldTo) {
  const auto kv = [](const TunePlan& plan) {
    return *std::find_if(plan.settings.begin(), plan.settings.end(), [](const auto& one) { return one.name == "kv"; });
  };
  EXPECT_TRUE(kv(planned(server(4))).only_shown);
  TuneArguments arguments;
  arguments.coarser_kv = true;
  EXPECT_FALSE(kv(planned(server(4), arguments)).only_shown);
  EXPECT_THAT(kv(planned(server(4), arguments)).values, ElementsAre("q8_0", "q4_0"));
}

TEST(TunePlan, IsAboutTheSettingsThatWereAskedForAlone) {
  TuneArguments arguments;
  arguments.only = {"poll", "route"};
  TuneFacts facts = server(4);
  facts.npu = false;
  const TunePlan plan = planned(facts, arguments);
  ASSERT_EQ(plan.settings.size(), 1U);
  EXPECT_EQ(plan.settings[0].name, "poll");
  ASSERT_EQ(plan.left_out.size(), 1U);
  EXPECT_EQ(plan.left_out[0].setting, "route");

  const auto refused = [&](const std::string& setting) {
    arguments.only = {setting};
    const Result<TunePlan> none = plan_tune(arguments, facts);
    EXPECT_FALSE(none.ok());
    if (none.ok()) return std::string();
    EXPECT_EQ(none.error().code(), ErrorCode::kUsage);
    return none.error().message();
  };
  EXPECT_THAT(refused("moon_phase"), HasSubstr("there is no setting 'moon_phase'"));
  EXPECT_THAT(refused("context"), HasSubstr("is not searched"));
  EXPECT_THAT(refused("route"), HasSubstr("nothing to search: this machine has no NPU"));
}

TEST(TunePlan, MeasuresAsDeepAsTheModelWasTrained) {
  EXPECT_EQ(planned(server(4)).decode(), "decode_1024");
  EXPECT_EQ(planned(server(4)).prefill(), "prefill_1024");
  EXPECT_EQ(planned(server(4)).prefill_at(), "prefill_512_at_2048");
  TuneFacts shallow = server(4);
  shallow.trained_context_tokens = 1024;
  const TunePlan plan = planned(shallow);
  EXPECT_EQ(plan.decode(), "decode_256");
  EXPECT_LE(plan.context_tokens, 1024U);
  EXPECT_THAT(values(plan, "ubatch"), ElementsAre("128", "256"));
  shallow.trained_context_tokens = 128;
  const TuneArguments usual;
  const Result<TunePlan> none = plan_tune(usual, shallow);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), ErrorCode::kUnsupported);
}

TEST(TunePlan, DoesMoreWorkWithEveryLevelAndAllOfItForAProof) {
  const TunePlan plan = planned(server(4));
  const auto words = [&](int level, std::vector<std::string> figures) {
    return steps_of(plan, {level, std::move(figures)}).words;
  };
  EXPECT_THAT(words(0, {"decode_1024"}), ElementsAre("decode:1025:8"));
  EXPECT_THAT(words(1, {"decode_1024"}), ElementsAre("decode:1025:16"));
  EXPECT_THAT(words(0, {"prefill_1024"}), ElementsAre("prefill:256"));
  EXPECT_THAT(words(3, {"prefill_1024", "decode_1024"}), ElementsAre("prefill:1024", "decode:1025:32"));
  const TuneSteps full = steps_of(plan, bench::Work{});
  EXPECT_THAT(full.words, ElementsAre("prefill:1024", "decode:1024:32", "prefill:512@2048"));
  for (const auto& [step, figure] : full.figures) EXPECT_EQ(step, figure);
  // A short look stands for the figure that it is a look at.
  EXPECT_THAT(steps_of(plan, {0, {"prefill_1024"}}).figures,
              ElementsAre(::testing::Pair("prefill_256", "prefill_1024")));
}

}  // namespace
}  // namespace kazeia::cli
