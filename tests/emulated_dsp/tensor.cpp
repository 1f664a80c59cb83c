#include "emulated_dsp/tensor.h"

#include <ggml.h>

#include <cstring>

namespace kazeia::emulated_dsp {
namespace {

std::size_t type_size(std::uint32_t type) {
  return ggml_type_size(static_cast<ggml_type>(type));
}
std::int64_t block_size(std::uint32_t type) {
  return ggml_blck_size(static_cast<ggml_type>(type));
}

// Walks the elements of a tensor in order.
class Walker {
 public:
  explicit Walker(const Tensor& tensor) : tensor_(tensor), address_(tensor.data) {}

  std::uint8_t* address() const { return address_; }
  void next() {
    address_ += tensor_.nb[0];
    for (std::size_t dim = 0; dim < 4; ++dim) {
      if (++index_[dim] < tensor_.ne[dim] || dim == 3) return;
      address_ -= static_cast<std::size_t>(tensor_.ne[dim]) * tensor_.nb[dim];
      index_[dim] = 0;
      address_ += tensor_.nb[dim + 1];
    }
  }

 private:
  const Tensor& tensor_;
  std::array<std::int64_t, 4> index_{};
  std::uint8_t* address_;
};

void convert_row(const Tensor& from, const std::uint8_t* source, const Tensor& to, std::uint8_t* target,
                 std::int64_t count) {
  if (from.type == to.type) {
    std::memmove(
        target, source,
        static_cast<std::size_t>(count) / static_cast<std::size_t>(block_size(from.type)) * type_size(from.type));
  } else if (from.type == GGML_TYPE_F32) {
    ggml_fp32_to_fp16_row(reinterpret_cast<const float*>(source), reinterpret_cast<ggml_fp16_t*>(target), count);
  } else {
    ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t*>(source), reinterpret_cast<float*>(target), count);
  }
}

}  // namespace

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.ne == b.ne;
}

bool repeats_to(const Tensor& a, const Tensor& b) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (b.ne[i] % a.ne[i] != 0) return false;
  }
  return true;
}

bool rows_contiguous(const Tensor& tensor) {
  return !tensor.tiled && tensor.nb[0] == type_size(tensor.type);
}

bool contiguous(const Tensor& tensor) {
  if (tensor.tiled) return false;
  const Tensor packed = contiguous_at(nullptr, tensor.type, tensor.ne);
  for (std::size_t i = 0; i < 4; ++i) {
    if (tensor.ne[i] != 1 && tensor.nb[i] != packed.nb[i]) return false;
  }
  return true;
}

std::int64_t index_at(const Tensor& indices, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3) {
  const std::uint8_t* at = indices.row(i1, i2, i3) + static_cast<std::size_t>(i0) * indices.nb[0];
  return indices.type == GGML_TYPE_I64 ? *reinterpret_cast<const std::int64_t*>(at)
                                       : *reinterpret_cast<const std::int32_t*>(at);
}

std::size_t extent(const Tensor& tensor) {
  const auto blocks = static_cast<std::size_t>(tensor.ne[0] / block_size(tensor.type));
  std::size_t last = (blocks - 1) * tensor.nb[0] + type_size(tensor.type);
  for (std::size_t i = 1; i < 4; ++i) last += static_cast<std::size_t>(tensor.ne[i] - 1) * tensor.nb[i];
  return last;
}

Tensor contiguous_at(std::uint8_t* data, std::uint32_t type, const std::array<std::int64_t, 4>& ne) {
  Tensor tensor;
  tensor.data = data;
  tensor.type = type;
  tensor.ne = ne;
  tensor.nb[0] = type_size(type);
  tensor.nb[1] = tensor.nb[0] * static_cast<std::size_t>(ne[0] / block_size(type));
  tensor.nb[2] = tensor.nb[1] * static_cast<std::size_t>(ne[1]);
  tensor.nb[3] = tensor.nb[2] * static_cast<std::size_t>(ne[2]);
  return tensor;
}

std::size_t contiguous_bytes(std::uint32_t type, const std::array<std::int64_t, 4>& ne) {
  return contiguous_at(nullptr, type, ne).nb[3] * static_cast<std::size_t>(ne[3]);
}

bool copy_elements(const Tensor& from, const Tensor& to) {
  if (from.elements() != to.elements() || from.tiled || to.tiled) return false;
  const bool floats = (from.type == GGML_TYPE_F32 || from.type == GGML_TYPE_F16) &&
                      (to.type == GGML_TYPE_F32 || to.type == GGML_TYPE_F16);
  if (from.type != to.type && !floats) return false;
  if (contiguous(from) && contiguous(to)) {
    convert_row(from, from.data, to, to.data, from.elements());
    return true;
  }
  if (same_shape(from, to) && rows_contiguous(from) && rows_contiguous(to)) {
    for (std::int64_t i3 = 0; i3 < from.ne[3]; ++i3) {
      for (std::int64_t i2 = 0; i2 < from.ne[2]; ++i2) {
        for (std::int64_t i1 = 0; i1 < from.ne[1]; ++i1) {
          convert_row(from, from.row(i1, i2, i3), to, to.row(i1, i2, i3), from.ne[0]);
        }
      }
    }
    return true;
  }
  if (block_size(from.type) != 1) return false;
  Walker source(from);
  Walker target(to);
  for (std::int64_t i = from.elements(); i > 0; --i) {
    convert_row(from, source.address(), to, target.address(), 1);
    source.next();
    target.next();
  }
  return true;
}

}  // namespace kazeia::emulated_dsp
