// Does the NPU compute each kind of operation right? Small graphs of one node each, on both processors over the same
// memory. What `kazeia doctor --npu` prints.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "npu/op_policy.h"

namespace kazeia::npu {

class Device;

struct OpCheck {
  std::string name;  // "MUL_MAT q4_0", "ROPE imrope", ...
  OpClass op_class = OpClass::kMatmul;
  bool supported = false;  // by upstream's host code for this shape; if not, the CPU does it
  bool correct = false;
  double error = 0;      // largest difference from the CPU's result, as a part of its largest value
  double tolerance = 0;  // of `error`; the DSP rounds to f16 where the CPU rounds to int8, or not at all
  double npu_us = 0;     // second run, crossing included
  double cpu_us = 0;     // one thread
};

// A fraction of a second on a working device. Stops early, with what it has, when the device fails; Guard::status()
// then says how. kEngine if not even memory can be had.
Result<std::vector<OpCheck>> check_ops(Device& device);

}  // namespace kazeia::npu
