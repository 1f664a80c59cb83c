// The same attention in float64, one query after the other: what the kernels are tested against.
#pragma once

#include <vector>

#include "attention/attention.h"

namespace kazeia::attention {

// [rows, heads, dimension]; task.out is not touched.
std::vector<double> reference(const Task& task);

}  // namespace kazeia::attention
