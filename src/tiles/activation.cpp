#include "tiles/activation.h"

namespace kazeia::tiles {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// One cache line more than the row: rows of 4096 bytes would all fall into the same cache sets.
constexpr std::int64_t stride_of(std::int64_t blocks) {
  return round_up(blocks * 32, 64) + 64;
}

}  // namespace

ColumnOrder column_order(WeightType type) {
  return type == WeightType::kQ8_0 || type == WeightType::kQ6_K ? ColumnOrder::kNatural : ColumnOrder::kEvenOdd;
}

std::size_t Activations::bytes(std::int64_t tokens, std::int64_t columns) {
  const std::int64_t blocks = (columns + 31) / 32;
  return static_cast<std::size_t>(tokens * stride_of(blocks) + round_up(tokens * blocks * 4, 64) +
                                  round_up(tokens * blocks * 8, 64));
}

Activations Activations::on(void* memory, std::int64_t tokens, std::int64_t columns) {
  Activations view{};
  view.blocks = (columns + 31) / 32;
  view.quant_stride = stride_of(view.blocks);
  auto* base = static_cast<std::byte*>(memory);
  view.quants = reinterpret_cast<std::int8_t*>(base);
  base += tokens * view.quant_stride;
  view.scales = reinterpret_cast<float*>(base);
  base += round_up(tokens * view.blocks * 4, 64);
  view.sums = reinterpret_cast<std::int32_t*>(base);
  return view;
}

}  // namespace kazeia::tiles
