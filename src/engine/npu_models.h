// For the tests of this room that run upstream's real Hexagon host code against the emulated DSP. One process opens one
// device and a failed one stays failed, so every test needs a process of its own, which is how ctest runs them.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "engine/mini_models.h"
#include "npu/guard.h"

namespace kazeia::mini {

// What the emulated DSP shall do wrong (tests/emulated_dsp/README.md), from its next batch or call on.
inline void set_fault(const char* fault, int at = 1) {
  setenv("KAZEIA_DSP_FAULT_AT", std::to_string(at).c_str(), 1);
  setenv("KAZEIA_DSP_FAULT", fault, 1);
}

inline Result<std::shared_ptr<const Model>> try_load_npu(const std::string& file_path) {
  ModelOptions options;
  options.placement = Placement::kNpu;
  return Model::load(file_path, options);
}

// Loaded once per process.
inline std::shared_ptr<const Model> npu_model(const std::string& file) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  std::shared_ptr<const Model>& entry = loaded[file];
  if (entry == nullptr) {
    auto result = try_load_npu(path(file));
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
    if (result.ok()) entry = std::move(result).value();
  }
  return entry;
}

inline std::unique_ptr<Timeline> npu_timeline(const std::string& file, TimelineOptions options = small_context()) {
  const auto loaded = npu_model(file);
  if (loaded == nullptr) return nullptr;
  auto result = Timeline::create(loaded, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

}  // namespace kazeia::mini
