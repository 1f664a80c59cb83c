// The kernels of one instruction set, as a table of functions, and the choice among them at run time.
//
// All functions work on one row of tiles: 32 rows of the matrix, `blocks` tiles long. They write 32 floats per
// token; a caller whose matrix ends inside the last row of tiles gives a buffer and copies what it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tiles/activation.h"
#include "tiles/layout.h"

namespace kazeia::tiles {

struct KernelSet {
  std::string_view name;  // "scalar", "avx2", "avx512-vnni", "neon-dotprod", "neon-i8mm"

  // Quantises `columns` floats (any count; the rest of the last block becomes zero) into row `token` of `out`.
  void (*quantise)(const float* x, std::int64_t columns, ColumnOrder order, const Activations& out, std::int64_t token);

  // out[32] = 32 rows x one token.
  void (*gemv)(WeightType type, const std::uint8_t* tiles, const Activations& a, std::int64_t token, float* out);

  // A row of tiles expanded into the form that `gemm` multiplies from, in a format of its own; it pays when more
  // than one token uses it. `panel` has panel_bytes(type, blocks) bytes and is 64-byte aligned.
  std::size_t (*panel_bytes)(WeightType type, std::int64_t blocks);
  void (*expand)(WeightType type, const std::uint8_t* tiles, std::int64_t blocks, std::uint8_t* panel);

  // out[t * out_stride + r] for tokens [first, first + count) and the panel's 32 rows r; out_stride in floats.
  void (*gemm)(WeightType type, const std::uint8_t* panel, const Activations& a, std::int64_t first, std::int64_t count,
               float* out, std::int64_t out_stride);
};

// Every set that this machine can run, best first; the last one is always "scalar".
std::span<const KernelSet* const> available_kernels();
// The best one, or the one named by the environment variable KAZEIA_KERNELS if this machine can run it.
const KernelSet& kernels();

// out[columns] = row `row` of the matrix, dequantised.
void dequantise_row(const Shape& shape, const std::uint8_t* tiles, std::int64_t row, float* out);

const KernelSet& scalar_kernels();
#if defined(__x86_64__)
const KernelSet& avx2_kernels();
const KernelSet& avx512_kernels();
#elif defined(__aarch64__)
const KernelSet& dotprod_kernels();
const KernelSet& i8mm_kernels();
#endif

}  // namespace kazeia::tiles
