// Is what the NPU computes what the CPU computes? Two short prompts on both.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/model.h"

namespace kazeia {

struct SelfCheck {
  bool passed = false;
  bool remembered = false;  // an earlier start checked this model with this engine
  double agreement = 0;     // cosine of the logits of both processors, the worse of two prompts; 1 = the same
  double distinction = 0;   // cosine of the NPU's logits of two different prompts; 1 = it says the same to both
  double npu_ms = 0;
  double cpu_ms = 0;
  std::string finding;  // one line if it did not pass
};

// For a model placed on the NPU; takes a state of 256 tokens for a moment. kEngine if no state can be made.
Result<SelfCheck> check_npu(const std::shared_ptr<const Model>& model);

}  // namespace kazeia
