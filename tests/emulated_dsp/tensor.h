// A tensor record after validation: real memory, signed 64-bit dimensions, ggml's conventions for strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kazeia::emulated_dsp {

struct Tensor {
  std::uint8_t* data = nullptr;
  std::uint32_t type = 0;  // a ggml_type
  std::array<std::int64_t, 4> ne{};
  std::array<std::size_t, 4> nb{};
  // In the tile layout: ne[0] and ne[1] are padded to 32, nb[2] and nb[3] are whole matrices.
  bool tiled = false;
  bool fence = false;

  std::int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  std::int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  std::uint8_t* row(std::int64_t i1, std::int64_t i2, std::int64_t i3) const {
    return data + static_cast<std::size_t>(i1) * nb[1] + static_cast<std::size_t>(i2) * nb[2] +
           static_cast<std::size_t>(i3) * nb[3];
  }
};

bool same_shape(const Tensor& a, const Tensor& b);
// b's dimensions are multiples of a's.
bool repeats_to(const Tensor& a, const Tensor& b);
// Elements of a row follow each other.
bool rows_contiguous(const Tensor& tensor);
bool contiguous(const Tensor& tensor);
// An element of an I32 or I64 tensor.
std::int64_t index_at(const Tensor& indices, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3);
// First to one past the last byte that the strides reach; not for tiles.
std::size_t extent(const Tensor& tensor);
// A contiguous tensor of this type and shape at `data`.
Tensor contiguous_at(std::uint8_t* data, std::uint32_t type, const std::array<std::int64_t, 4>& ne);
std::size_t contiguous_bytes(std::uint32_t type, const std::array<std::int64_t, 4>& ne);

// Copies in the order of the elements (the shapes may differ, their products must not). Types: equal, of any element
// size without blocks, or F32 to F16 and back. Quantised tensors: equal shape and contiguous rows only. False: it
// cannot.
bool copy_elements(const Tensor& from, const Tensor& to);

}  // namespace kazeia::emulated_dsp
