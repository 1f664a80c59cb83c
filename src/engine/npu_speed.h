// How fast both processors read a prompt, by the width of its pieces: where the NPU begins to pay.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/model.h"

namespace kazeia {

struct WidthSpeed {
  std::size_t tokens = 0;  // of the piece
  double npu_tps = 0;      // median of three, without the witness
  double cpu_tps = 0;
};

struct NpuSpeed {
  std::vector<WidthSpeed> widths;
  double switch_ms = 0;  // mean over the measurement: planning the graph for the other processor
  // The narrowest piece from which on the NPU was faster at every width; 0 = at none.
  std::size_t recommended_min_tokens = 0;
};

// Fewest tokens from which on the NPU is faster at every wider width too; 0 if it never is. Widths ascending.
std::size_t recommended_min_tokens(std::span<const WidthSpeed> widths);

// For a model placed on the NPU. `on_width` is called before each width. kEngine if the device failed on the way.
Result<NpuSpeed> measure_npu_speed(const std::shared_ptr<const Model>& model, int threads,
                                   const std::function<void(std::size_t width)>& on_width = {});

}  // namespace kazeia
