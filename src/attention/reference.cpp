#include "attention/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tiles/half.h"

namespace kazeia::attention {
namespace {

template <typename Element>
Element element(const std::byte* row, std::int64_t i) {
  Element value;
  std::memcpy(&value, row + static_cast<std::size_t>(i) * sizeof value, sizeof value);
  return value;
}

double half(const std::byte* row, std::int64_t i) {
  return static_cast<double>(tiles::half_to_float(element<std::uint16_t>(row, i)));
}

const std::byte* at(const std::byte* base, std::int64_t i, std::size_t stride, std::int64_t j, std::size_t other) {
  return base + static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j) * other;
}

void attend_one(const Task& task, std::int64_t row, std::int64_t head, double* out) {
  const std::int64_t kv_head = head / (task.heads / task.kv_heads);
  const std::byte* q = at(task.q, row, task.q_row_stride, head, task.q_head_stride);
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t p = 0; p < task.positions; ++p) {
    double score = task.mask == nullptr ? 0 : half(at(task.mask, row, task.mask_row_stride, 0, 0), p);
    if (std::isfinite(score)) {
      const std::byte* k = at(task.k, p, task.k_position_stride, kv_head, task.k_head_stride);
      double dot = 0;
      for (std::int64_t d = 0; d < task.dimension; ++d) dot += static_cast<double>(element<float>(q, d)) * half(k, d);
      score += dot * static_cast<double>(task.scale);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  std::fill_n(out, task.dimension, 0.0);
  double sum = 0;
  for (std::int64_t p = 0; p < task.positions; ++p) {
    const double score = scores[static_cast<std::size_t>(p)];
    if (!std::isfinite(score)) continue;
    const double weight = std::exp(score - largest);
    const std::byte* v = at(task.v, p, task.v_position_stride, kv_head, task.v_head_stride);
    for (std::int64_t d = 0; d < task.dimension; ++d) out[d] += weight * half(v, d);
    sum += weight;
  }
  for (std::int64_t d = 0; d < task.dimension && sum != 0; ++d) out[d] /= sum;
}

}  // namespace

std::vector<double> reference(const Task& task) {
  std::vector<double> out(static_cast<std::size_t>(task.results() * task.dimension));
  for (std::int64_t i = 0; i < task.results(); ++i) {
    attend_one(task, i / task.heads, i % task.heads, out.data() + i * task.dimension);
  }
  return out;
}

}  // namespace kazeia::attention
