#include "plan/memory_plan.h"

#include <gmock/gmock.h>

#include "base/units.h"

namespace kazeia::plan {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// 1000 MiB that nobody can change, and a cache of 1 MiB per token in f16.
Result<MemoryPlan> toy(const PlanSettings& settings) {
  const std::uint64_t per_token = settings.kv_type == "f16" ? kMiB : kMiB / 2;
  MemoryPlan plan;
  plan.parts = {{"weights", "", 1000 * kMiB, true},
                {"kv_cache", "", settings.context_tokens * per_token, false},
                {"compute", "", settings.ubatch_tokens * kMiB / 4, false},
                {"checkpoints", "", settings.checkpoint_bytes, false}};
  return plan;
}

PlanSettings settings() {
  return {.context_tokens = 4096, .kv_type = "f16", .ubatch_tokens = 512, .checkpoint_bytes = 256 * kMiB};
}

std::vector<Change> fitting(std::uint64_t budget_mib) {
  auto changes = changes_that_fit(settings(), budget_mib * kMiB, toy);
  EXPECT_TRUE(changes.ok());
  return std::move(changes).value();
}

TEST(MemoryPlan, AddsItsPartsUpAndTellsWhatMayBeDropped) {
  const auto plan = toy(settings());
  EXPECT_EQ(plan->peak_bytes(), (1000 + 4096 + 128 + 256) * kMiB);
  EXPECT_EQ(plan->evictable_bytes(), 1000 * kMiB);
  EXPECT_EQ(plan->bytes_of("kv_cache"), 4096 * kMiB);
  EXPECT_EQ(plan->bytes_of("nothing"), 0u);
}

TEST(MemoryPlan, DoesNotOverflow) {
  MemoryPlan plan;
  plan.parts = {{"a", "", ~0ull, false}, {"b", "", ~0ull, false}};
  EXPECT_EQ(plan.peak_bytes(), ~0ull);
}

TEST(ChangesThatFit, BeginWithTheOneThatCostsTheUserLeast) {
  const auto changes = fitting(5300);
  ASSERT_THAT(changes, SizeIs(3));
  EXPECT_EQ(changes[0].text, "--checkpoint-memory 64MB");
  EXPECT_EQ(changes[0].peak_bytes, (1000 + 4096 + 128 + 64) * kMiB);
  EXPECT_EQ(changes[1].text, "--kv q8_0") << "a narrow ubatch would not do";
  EXPECT_EQ(changes[2].text, "--context 3840");
}

TEST(ChangesThatFit, JoinTwoWhenOneIsNotEnough) {
  const auto changes = fitting(1750);
  ASSERT_FALSE(changes.empty());
  EXPECT_THAT(changes[0].text, HasSubstr("--checkpoint-memory 64MB --context "));
  for (const Change& change : changes) EXPECT_LE(change.peak_bytes, 1750 * kMiB);
}

TEST(ChangesThatFit, AreNoneIfTheWeightsAloneAreTooLarge) {
  EXPECT_THAT(fitting(900), IsEmpty());
}

TEST(CheckBudget, LetsEverythingThroughWithoutOne) {
  EXPECT_TRUE(check_budget(settings(), *toy(settings()), 0, toy).ok());
  EXPECT_TRUE(check_budget(settings(), *toy(settings()), 6000 * kMiB, toy).ok());
}

TEST(CheckBudget, RefusesWithTheTotalsAndWhatWouldFit) {
  const Status status = check_budget(settings(), *toy(settings()), 5300 * kMiB, toy);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kTooLarge);
  EXPECT_THAT(status.error().sentence(), HasSubstr("5.35 GiB"));
  EXPECT_THAT(status.error().next(), HasSubstr("--checkpoint-memory 64MB (5.16 GiB), or --kv q8_0"));
}

TEST(CheckBudget, AsksForAnotherModelIfNothingWouldDo) {
  const Status status = check_budget(settings(), *toy(settings()), 900 * kMiB, toy);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().next(), HasSubstr("smaller model"));
}

TEST(DefaultBudget, IsWhatATabletGivesOrLess) {
  EXPECT_EQ(default_budget_bytes(0), 4 * kGiB);
  EXPECT_EQ(default_budget_bytes(24 * kGiB), 4 * kGiB);
  EXPECT_EQ(default_budget_bytes(3 * kGiB), 3 * kGiB);
}

}  // namespace
}  // namespace kazeia::plan
