// How alike two rows of logits are.
#pragma once

#include <span>
#include <string>

namespace kazeia {

// The cosine between the rows after each one's mean is taken off, because softmax does not see the mean. Between the
// CPU's int8 and the NPU's f16 activations it is above 0.999 for the shipped models and 0.988 for a 4B file of random
// weights, which magnifies every rounding; between unrelated rows about 0.
// -1 if a value is not a number, or a row is constant. The rows must be of one length.
double agreement(std::span<const float> a, std::span<const float> b);

// Below it the two did not compute the same thing.
inline constexpr double kLeastAgreement = 0.9;
// What the user is told then.
std::string wrong_results(double agreement);

}  // namespace kazeia
