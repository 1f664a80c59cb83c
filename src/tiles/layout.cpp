#include "tiles/layout.h"

#include <array>
#include <cassert>

namespace kazeia::tiles {
namespace {

//                          type              name     tile  quants scales n  cols bytes exact function
constexpr std::array kLayouts{
    Layout{WeightType::kQ4_0, "Q4_0", 576, 512, 512, 1, 32, 18, true, "repack_q4_0_tiled"},
    Layout{WeightType::kQ4_1, "Q4_1", 640, 512, 512, 2, 32, 20, true, "repack_q4_1_tiled"},
    Layout{WeightType::kQ8_0, "Q8_0", 1088, 1024, 1024, 1, 32, 34, true, "repack_q8_0_tiled"},
    Layout{WeightType::kQ4_K, "Q4_K", 640, 512, 512, 2, 256, 144, false, "repack_q4_K_tiled"},
    Layout{WeightType::kQ6_K, "Q6_K", 896, 768, 768, 2, 256, 210, false, "repack_q6_K_tiled"},
    Layout{WeightType::kIQ4_NL, "IQ4_NL", 576, 512, 512, 1, 32, 18, true, "repack_q4_0_tiled"},
    Layout{WeightType::kMXFP4, "MXFP4", 544, 512, 512, 1, 32, 17, true, "repack_mxfp4_tiled"},
};

}  // namespace

std::span<const Layout> layouts() {
  return kLayouts;
}

const Layout& layout(WeightType type) {
  for (const Layout& entry : kLayouts) {
    if (entry.type == type) return entry;
  }
  assert(false && "every WeightType has a layout");
  return kLayouts.front();
}

std::optional<WeightType> weight_type_of(std::uint32_t ggml_type) {
  for (const Layout& entry : kLayouts) {
    if (static_cast<std::uint32_t>(entry.type) == ggml_type) return entry.type;
  }
  return std::nullopt;
}

std::size_t Shape::row_tile_bytes() const {
  return static_cast<std::size_t>(column_tiles()) * static_cast<std::size_t>(layout(type).tile_bytes);
}

std::size_t Shape::block_row_bytes() const {
  const Layout& entry = layout(type);
  return static_cast<std::size_t>(columns / entry.block_columns) * static_cast<std::size_t>(entry.block_bytes);
}

}  // namespace kazeia::tiles
