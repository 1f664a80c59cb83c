// The part of `kazeia doctor` that is about the NPU: whether it is there, right, and worth it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/npu_speed.h"
#include "engine/self_check.h"
#include "npu/device.h"
#include "npu/op_check.h"

namespace kazeia::cli {

struct NpuQuestions {
  std::string model;  // "" = only what needs no model
  std::string profile_file;
  int threads = 0;
  bool save = false;  // what was measured into the profile
};

struct NpuReport {
  bool usable = false;
  std::string verdict;  // one sentence
  std::optional<npu::DeviceInfo> device;
  std::vector<npu::OpCheck> ops;
  std::optional<SelfCheck> check;
  std::uint64_t checked_matrices = 0;
  std::optional<NpuSpeed> speed;
  std::string profile;  // its file, "" = none
  std::string history;  // what the profile knows of failures
};

// Errors are those of the model file only; what is wrong with the device is in the report.
Result<NpuReport> examine_npu(const NpuQuestions& questions);
std::string as_text(const NpuReport& report);
nlohmann::ordered_json as_json(const NpuReport& report);

}  // namespace kazeia::cli
