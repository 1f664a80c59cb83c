// Token ids as the model's vocabulary numbers them.
#pragma once

#include <cstdint>
#include <vector>

namespace kazeia {

using Token = std::int32_t;
using Tokens = std::vector<Token>;

}  // namespace kazeia
