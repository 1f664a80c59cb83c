// Random tensor data, a whole number of blocks at a time, fast enough to keep a disk busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gguf/shapes.h"
#include "gguf/types.h"

namespace kazeia::gguf {

// A small generator (xoshiro256++) whose stream depends on all three numbers only, so that pieces of a tensor
// can be made in any order and on any thread.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t tensor, std::uint64_t piece);
  std::uint64_t next();
  float uniform();  // [0, 1)

 private:
  std::uint64_t state_[4];
};

// Fills `out` with blocks of `type` (F32, Q4_0 or Q6_K; a programmer error otherwise). `columns` is the length of a
// row, from which matrices take their scale.
void fill_blocks(std::span<std::byte> out, TypeId type, Fill fill, std::uint64_t columns, Random& random);

// IEEE 754 half precision, rounded to nearest even; finite values beyond the largest one become infinite.
std::uint16_t half_from_float(float value);

}  // namespace kazeia::gguf
