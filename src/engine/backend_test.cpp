#include "engine/backend.h"

#include <gtest/gtest.h>

#include "ggml.h"
#include "llama.h"

namespace kazeia {
namespace {

// As upstream would report it.
void report(ggml_log_level level, const char* text) {
  ggml_log_callback callback = nullptr;
  void* user_data = nullptr;
  llama_log_get(&callback, &user_data);
  ASSERT_NE(callback, nullptr);
  callback(level, text, user_data);
}

TEST(UpstreamErrors, KeepTheFirstReasonWithoutTheFunctionName) {
  initialise_backend();
  const UpstreamErrors errors;
  report(GGML_LOG_LEVEL_INFO, "loading\n");
  report(GGML_LOG_LEVEL_ERROR, "some_function: error loading model: the tensor is missing\n");
  report(GGML_LOG_LEVEL_ERROR, "other: failed to load model\n");
  EXPECT_EQ(errors.reason(), "the tensor is missing");
}

TEST(UpstreamErrors, JoinALineThatComesInPieces) {
  initialise_backend();
  const UpstreamErrors errors;
  report(GGML_LOG_LEVEL_ERROR, "f: one ");
  report(GGML_LOG_LEVEL_CONT, "two\n");
  report(GGML_LOG_LEVEL_INFO, "progress");
  report(GGML_LOG_LEVEL_CONT, "...\n");
  EXPECT_EQ(errors.reason(), "one two");
}

TEST(UpstreamErrors, GiveTheFallbackWhenNothingWasReported) {
  initialise_backend();
  const UpstreamErrors errors;
  report(GGML_LOG_LEVEL_WARN, "f: unusual\n");
  EXPECT_EQ(errors.reason("status 3"), "status 3");
}

TEST(UpstreamErrors, OfAnInnerScopeDoNotReachTheOuterOne) {
  initialise_backend();
  const UpstreamErrors outer;
  {
    const UpstreamErrors inner;
    report(GGML_LOG_LEVEL_ERROR, "f: inner\n");
    EXPECT_EQ(inner.reason(), "inner");
  }
  report(GGML_LOG_LEVEL_ERROR, "f: outer\n");
  EXPECT_EQ(outer.reason(), "outer");
}

TEST(InitialiseBackend, CanBeCalledAgain) {
  initialise_backend();
  initialise_backend();
}

}  // namespace
}  // namespace kazeia
