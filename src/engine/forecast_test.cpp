#include "engine/forecast.h"

#include <gtest/gtest.h>

#include "engine/mini_models.h"
#include "engine/state_size.h"

namespace kazeia {
namespace {

using mini::EachModel;

ForecastRequest request(std::uint32_t context, KvType kv = KvType::kF16, std::uint32_t ubatch = 512) {
  ForecastRequest request;
  request.timeline = mini::small_context(context);
  request.timeline.kv_type = kv;
  request.timeline.ubatch_tokens = ubatch;
  return request;
}

std::unique_ptr<Forecaster> forecaster(const std::string& file) {
  auto opened = Forecaster::open(mini::path(file), Placement::kCpu);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().sentence());
  return opened.ok() ? std::move(opened).value() : nullptr;
}

// Not "about as much": the same bytes, because upstream plans both in the same way.
TEST_P(EachModel, IsForecastToTheByteForEveryContextCacheTypeAndUbatch) {
  const auto planner = forecaster(GetParam());
  ASSERT_NE(planner, nullptr);
  for (const std::uint32_t context : {256u, 1024u, 2048u}) {
    for (const KvType kv : {KvType::kF16, KvType::kQ8_0, KvType::kQ4_0}) {
      for (const std::uint32_t ubatch : {64u, 512u}) {
        const ForecastRequest asked = request(context, kv, ubatch);
        const auto plan = planner->forecast(asked);
        ASSERT_TRUE(plan.ok()) << plan.error().sentence();
        const auto timeline = mini::timeline(GetParam(), asked.timeline);
        const plan::StateSample real = measure_state(timeline->raw());
        EXPECT_EQ(plan->bytes_of("kv_cache") + plan->bytes_of("recurrent_state"), real.cache_bytes) << context;
        EXPECT_EQ(plan->bytes_of("compute"), real.compute_bytes) << context << " " << ubatch;
      }
    }
  }
}

TEST_P(EachModel, NeedsHalfTheCacheWithEightBitsAndAQuarterWithFour) {
  const auto planner = forecaster(GetParam());
  const auto bytes = [&](KvType kv) {
    return static_cast<double>(planner->forecast(request(2048, kv))->bytes_of("kv_cache"));
  };
  EXPECT_NEAR(bytes(KvType::kQ8_0) / bytes(KvType::kF16), 0.53, 0.01);
  EXPECT_NEAR(bytes(KvType::kQ4_0) / bytes(KvType::kF16), 0.28, 0.01);
}

TEST_P(EachModel, HasARecurrentStateOnlyIfItHasRecurrentLayers) {
  const auto planner = forecaster(GetParam());
  const auto plan = planner->forecast(request(1024));
  EXPECT_EQ(plan->bytes_of("recurrent_state") > 0, mini::model(GetParam())->has_recurrent_state());
  EXPECT_EQ(plan->bytes_of("recurrent_state"), plan->bytes_of("recurrent_copy"));
  const auto longer = planner->forecast(request(2048));
  EXPECT_EQ(plan->bytes_of("recurrent_state"), longer->bytes_of("recurrent_state")) << "it does not grow";
}

TEST_P(EachModel, CountsTheWeightsAsTheyAreInTiles) {
  const auto planner = forecaster(GetParam());
  const auto plan = planner->forecast(request(1024));
  const auto model = mini::model(GetParam());
  EXPECT_GE(plan->bytes_of("weights"), model->tile_bytes());
  EXPECT_LT(static_cast<double>(plan->bytes_of("weights")), 1.2 * static_cast<double>(model->weight_bytes()));
}

TEST_P(EachModel, IsRefusedBeforeItIsLoadedIfItDoesNotFit) {
  const std::string path = mini::path(GetParam());
  EXPECT_TRUE(check_forecast(path, request(2048), 0).ok());
  EXPECT_TRUE(check_forecast(path, request(2048), 1u << 30).ok());
  const Status refused = check_forecast(path, request(1000000), 10u << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kTooLarge);
}

TEST(Forecast, OfAFileThatCannotBeLoadedIsItsError) {
  const auto opened = Forecaster::open("no such file.gguf", Placement::kCpu);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), ErrorCode::kFile);
}

TEST(Forecast, OfACoarseCacheWithoutFlashAttentionIsRefused) {
  ForecastRequest asked = request(1024, KvType::kQ8_0);
  asked.timeline.flash_attention = false;
  const auto plan = forecaster(mini::kDense)->forecast(asked);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace kazeia
