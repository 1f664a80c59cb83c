// Choosing a route, and what is remembered about it.
#include "engine/route.h"

#include <string>

#include "engine/npu_models.h"
#include "npu/profile.h"
#include "npu/shared_memory.h"
#include "tiles/buffer_type.h"

namespace kazeia {
namespace {

RouteOptions remembered(Route route, const std::string& profile) {
  RouteOptions options;
  options.route = route;
  options.profile_file = profile;
  return options;
}

TEST(NpuRoute, DoesNotBlameTheDeviceForAFileThatNobodyCanLoad) {
  const std::string profile = mini::own_path("profile.json");
  const std::string file = mini::write_copy(
      "unknown.gguf",
      mini::replaced(mini::file_bytes(mini::path(mini::kDense)), "general.architecture", "general.architecturX"));
  EXPECT_FALSE(load_on_route(file, {}, remembered(Route::kAuto, profile)).ok());
  EXPECT_EQ(npu::read_profile(profile).profile.failures.count, 0u);
  const auto good = load_on_route(mini::path(mini::kDense), {}, remembered(Route::kAuto, profile));
  ASSERT_TRUE(good.ok()) << good.error().sentence();
  EXPECT_EQ(good->used, Route::kNpuPrefill);
}

TEST(NpuRoute, GoesWithoutAProfileThatCannotBeReached) {
  const std::string folder = mini::write_copy("a-file", "not a folder");
  const auto routed = load_on_route(mini::path(mini::kDense), {}, remembered(Route::kAuto, folder + "/profile.json"));
  ASSERT_TRUE(routed.ok()) << routed.error().sentence();
  EXPECT_EQ(routed->used, Route::kNpuPrefill);
}

TEST(NpuRoute, GoesOnWithTheWeightsWhereTheyAreIfTheSelfCheckFails) {
  setenv("KAZEIA_NPU_DEADLINE_MS", "500", 1);
  mini::set_fault("hang");
  const std::string profile = mini::own_path("profile.json");
  const auto routed = load_on_route(mini::path(mini::kHybrid), {}, remembered(Route::kNpuPrefill, profile));
  ASSERT_TRUE(routed.ok()) << routed.error().sentence();
  EXPECT_EQ(routed->used, Route::kCpu);
  EXPECT_NE(routed->note, "");
  EXPECT_EQ(npu::read_profile(profile).profile.failures.count, 1u);
  // Once: the matrices in the driver's memory, the table in ours.
  EXPECT_LE(static_cast<double>(npu::memory_counters().weight_bytes_resident + tiles::resident_tile_bytes()),
            1.1 * static_cast<double>(routed->model->weight_bytes()));
  // A second model of this process is not tried on it, and not blamed on it again.
  const auto second = load_on_route(mini::path(mini::kDense), {}, remembered(Route::kNpuPrefill, profile));
  ASSERT_TRUE(second.ok()) << second.error().sentence();
  EXPECT_EQ(second->used, Route::kCpu);
  EXPECT_EQ(npu::read_profile(profile).profile.failures.count, 1u);
}

TEST(NpuRoute, KeepsTheStateInOurMemoryIfTheDevicesDoesNotSuffice) {
  const auto routed =
      load_on_route(mini::path(mini::kHybrid), {}, remembered(Route::kNpuPrefill, mini::own_path("profile.json")));
  ASSERT_TRUE(routed.ok()) << routed.error().sentence();
  setenv("KAZEIA_DSP_MEMORY_BYTES", "1", 1);
  mini::set_fault("oom");
  TimelineOptions options = mini::small_context();
  options.npu = routed->npu;
  const auto timeline = Timeline::create(routed->model, options);
  ASSERT_TRUE(timeline.ok()) << timeline.error().sentence();
  auto sampler = std::move(Sampler::create(routed->model, mini::greedy())).value();
  ASSERT_TRUE((*timeline)->prefill(mini::tokens(mini::kHybrid, mini::question("What is the capital of Japan?"))).ok());
  const auto answer = generate(**timeline, *sampler, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->text, "The capital of Japan is Tokyo.");
}

}  // namespace
}  // namespace kazeia
