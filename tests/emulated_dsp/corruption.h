// What a DSP writes that computes nonsense but says it is fine.
#pragma once

#include "emulated_dsp/batch.h"
#include "emulated_dsp/faults.h"

namespace kazeia::emulated_dsp {

// Overwrites the floating-point elements that `op` has just written: random bits, finite or not (kGarbage), or 0.5
// (kConstant). SET_ROWS: only the rows it set. Integers stay, so that they may still be used as indices.
void corrupt_outputs(const Op& op, Fault fault);

}  // namespace kazeia::emulated_dsp
