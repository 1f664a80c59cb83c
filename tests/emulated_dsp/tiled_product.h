// Matrix product of tiled weights with activations, in the precision of the device's matrix unit: weights and
// activations rounded to f16, sums in f32.
#pragma once

#include <cstdint>

#include "emulated_dsp/tensor.h"

namespace kazeia::emulated_dsp {

// dst[row, token] = sum over k of weights[k, row] * activations[k, token] (+ addend[row, token]).
//
// The shapes must agree: weights padded to 32, rows counted by dst; activations F32 or F16 with contiguous rows;
// slices ne2 and ne3 of the weights are repeated over those of the activations. `addend` (null: none) is F32 and
// repeats to dst; it may be dst's own memory.
void multiply_tiles(const Tensor& weights, const Tensor& activations, const Tensor* addend, const Tensor& dst,
                    int threads);

}  // namespace kazeia::emulated_dsp
