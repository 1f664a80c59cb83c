// Sessions whose prompts an (emulated) NPU reads: parts of its state are taken from and put into the memory that both
// processors share. One process per test, as in src/engine/npu_models.h.
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "chat/mini_model.h"
#include "session/session.h"

namespace kazeia {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class NpuSession : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ModelOptions placed;
    placed.placement = Placement::kNpu;
    const char* models = std::getenv("KAZEIA_MODELS");
    auto model = Model::load(std::string(models == nullptr ? "models" : models) + "/" + GetParam(), placed);
    ASSERT_TRUE(model.ok()) << model.error().sentence();
    model_ = std::move(model).value();
    folder_ = testing::TempDir() + fmt::format("kazeia-npu-session-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    options_.folder = folder_;
    options_.memo_folder = folder_ + "/memo";
    options_.engine_version = "test";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Session> open(const std::shared_ptr<const Model>& model) {
    TimelineOptions options;
    options.context_tokens = 1024;
    options.decode_threads = 1;
    options.npu.prefill_min_tokens = 8;
    auto timeline = Timeline::create(model, options);
    EXPECT_TRUE(timeline.ok()) << (timeline.ok() ? "" : timeline.error().sentence());
    auto session = Session::open(model, std::move(timeline).value(), options_);
    EXPECT_TRUE(session.ok()) << (session.ok() ? "" : session.error().sentence());
    return std::move(session).value();
  }

  static TurnOptions turn() {
    TurnOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 60;
    return options;
  }

  static TurnResult say(Session& session, const std::string& text) {
    auto answer = session.say(text, turn());
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().sentence());
    return answer.ok() ? std::move(answer).value() : TurnResult{};
  }
  static void idle(Session& session) {
    const CancelFlag never;
    EXPECT_TRUE(session.finish(turn(), never).ok());
  }

  std::shared_ptr<const Model> model_;
  std::string folder_;
  SessionOptions options_;
};

TEST_P(NpuSession, ReadsNewTokensOnlyAndGoesOnAfterARestart) {
  {
    const auto session = open(model_);
    say(*session, "My name is Nadia.");
    idle(*session);
    const TurnResult second = say(*session, "What is the opposite of hot?");
    EXPECT_GT(second.stats.reused_tokens, second.stats.prompt_tokens / 3);
    idle(*session);
    EXPECT_GT(session->timeline().npu_use().prefill_tokens, 0u);
    EXPECT_EQ(session->timeline().npu_use().failure, "");
  }
  const auto session = open(model_);
  EXPECT_THAT(session->take_remarks(), IsEmpty());
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_THAT(answer.answer, HasSubstr("Nadia"));
  EXPECT_GT(answer.stats.reused_tokens, answer.stats.prompt_tokens / 2);
}

// What the NPU read, the CPU of a machine without one goes on with.
TEST_P(NpuSession, GoesOnOnTheCpuAlone) {
  {
    const auto session = open(model_);
    say(*session, "My name is Nadia.");
    idle(*session);
  }
  const auto session = open(mini_model(GetParam()));
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_THAT(answer.answer, HasSubstr("Nadia"));
  EXPECT_GT(session->counts().cache.rows_from_disk, 0u);
}

TEST_P(NpuSession, SurvivesADeviceThatFailsWhileItReadsAhead) {
  const auto session = open(model_);
  say(*session, "My name is Nadia.");
  idle(*session);
  setenv("KAZEIA_DSP_FAULT_AT", "1", 1);
  setenv("KAZEIA_DSP_FAULT", "error", 1);
  say(*session, "What is the opposite of hot?");
  idle(*session);
  EXPECT_NE(session->timeline().npu_use().failure, "");
  EXPECT_THAT(say(*session, "What is my name?").answer, HasSubstr("Nadia"));
}

INSTANTIATE_TEST_SUITE_P(Session, NpuSession, testing::Values(kDense, kHybrid), [](const auto& entry) {
  return entry.param == kDense ? std::string("Dense") : std::string("Hybrid");
});

}  // namespace
}  // namespace kazeia
