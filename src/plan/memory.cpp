#include "plan/memory.h"

#include <algorithm>
#include <limits>

namespace kazeia::plan {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kContextUnit = 256;

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a > kMax - b ? kMax : a + b;
}
std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kMax / b ? kMax : a * b;
}

}  // namespace

std::uint64_t StateShape::bytes(std::uint64_t context_tokens) const {
  return saturating_add(fixed_bytes, saturating_multiply(bytes_per_token, context_tokens));
}

StateShape state_shape(const StateSample& smaller, const StateSample& larger) {
  const std::uint64_t low = saturating_add(smaller.cache_bytes, smaller.compute_bytes);
  const std::uint64_t high = saturating_add(larger.cache_bytes, larger.compute_bytes);
  const std::uint64_t tokens =
      larger.context_tokens > smaller.context_tokens ? larger.context_tokens - smaller.context_tokens : 0;
  StateShape shape;
  if (tokens > 0 && high > low) shape.bytes_per_token = (high - low) / tokens + ((high - low) % tokens != 0 ? 1 : 0);
  const std::uint64_t grown = saturating_multiply(shape.bytes_per_token, smaller.context_tokens);
  shape.fixed_bytes = low > grown ? low - grown : 0;
  return shape;
}

std::uint32_t largest_context(const StateShape& shape, std::uint64_t available_bytes, std::uint32_t limit_tokens) {
  if (shape.bytes(kContextUnit) > available_bytes) return 0;
  std::uint64_t tokens = limit_tokens;
  if (shape.bytes_per_token > 0) {
    tokens = std::min<std::uint64_t>(tokens, (available_bytes - shape.fixed_bytes) / shape.bytes_per_token);
  }
  return static_cast<std::uint32_t>(tokens / kContextUnit * kContextUnit);
}

bool fits(std::uint64_t needed_bytes, std::uint64_t available_bytes) {
  return available_bytes == 0 || needed_bytes <= available_bytes;
}

}  // namespace kazeia::plan
