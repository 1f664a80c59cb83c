// The shipped mini models, for the tests of this room.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "engine/model.h"
#include "engine/timeline.h"

namespace kazeia {

inline const std::string kDense = "kazeia-mini-qwen3-q4_0.gguf";
inline const std::string kHybrid = "kazeia-mini-qwen35-q4_0.gguf";

// Null, with a test failure, if it cannot be loaded.
inline std::shared_ptr<const Model> mini_model(const std::string& name) {
  const char* folder = std::getenv("KAZEIA_MODELS");
  auto model = Model::load(std::string(folder == nullptr ? "models" : folder) + "/" + name, {});
  if (!model.ok()) {
    ADD_FAILURE() << model.error().sentence();
    return nullptr;
  }
  return std::move(model).value();
}

inline std::unique_ptr<Timeline> mini_timeline(std::shared_ptr<const Model> model,
                                               std::uint32_t context_tokens = 1024) {
  TimelineOptions options;
  options.context_tokens = context_tokens;
  // One thread: two that wait for each other on a busy machine are many times slower than one.
  options.decode_threads = 1;
  options.prefill_threads = 1;
  auto timeline = Timeline::create(std::move(model), options);
  if (!timeline.ok()) {
    ADD_FAILURE() << timeline.error().sentence();
    return nullptr;
  }
  return std::move(timeline).value();
}

}  // namespace kazeia
