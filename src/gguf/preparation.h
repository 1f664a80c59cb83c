// What `kazeia prepare` makes of a model: which tensor becomes which type so that both processors of the tablet
// take it, and the header of the new file. Pure planning; engine/quantise.h computes the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "gguf/types.h"
#include "gguf/writer.h"

namespace kazeia::gguf {

enum class TensorRole {
  kVector,     // one row, or integers: biases, norms, ssm_a, ...
  kSmall,      // more rows, but never quantised by upstream either: convolutions, expert routers, ...
  kMatrix,     // weights of a matrix product; one per expert if it has three dimensions
  kEmbedding,  // the token table or the output head
};
TensorRole tensor_role(const Tensor& tensor);

// Why the NPU cannot compute with `tensor` once it has `type`, as a phrase ("Q5_K has no tile layout"), or empty.
// About matrix products only: what else reads weights is the op policy's business. Token table and output head are
// never its business (engine/placement.cpp). Read from upstream b11118, ggml-hexagon.cpp
// (ggml_hexagon_supported_mul_mat), and npu/gate.cpp, which leaves the experts of a mixture to the CPU.
std::string npu_refusal(const Tensor& tensor, TypeId type);

struct PreparationOptions {
  TypeId weights = TypeId::kQ4_0;    // of matrices: Q4_0 or Q8_0
  TypeId embedding = TypeId::kQ6_K;  // of token table and output head: Q6_K, Q8_0 or Q4_0
  // Leaves what the NPU takes as it is, whatever its type.
  bool only_refused = false;
  // Not empty: tensors whose name it accepts are left as they are.
  std::function<bool(std::string_view name)> keep;
};

struct PreparedTensor {
  const Tensor* source = nullptr;  // in the file that the plan was made from
  std::size_t part = 0;            // of a split model
  TensorRole role = TensorRole::kVector;
  TypeId type = TypeId::kF32;
  std::uint64_t bytes = 0;
  bool fell_back = false;  // its columns do not fit the blocks of the type that was asked for
  std::string note;        // why it is not what was asked for or does not change; empty: nothing special

  bool changes() const { return type != source->type->id; }
};

struct Preparation {
  std::vector<PreparedTensor> tensors;  // in file order, part by part
  std::uint64_t bytes_before = 0;       // of tensor data
  std::uint64_t bytes_after = 0;

  std::size_t changed() const;
  // True if a tensor that changes was quantised already, so that its error is now made twice.
  bool requantises() const;
};

// `parts` have passed check_loadable() and must outlive the plan. kUnsupported for a tensor that cannot be
// converted (a type that nothing can be computed from).
Result<Preparation> plan_preparation(std::span<const File> parts, const PreparationOptions& options);

// What the new file says about its origin. Nothing here may differ between two runs on the same source.
struct Provenance {
  std::string engine;       // "kazeia 0.1.0"
  std::string upstream;     // "llama.cpp 0.5.0, ggml 0.24.0", whose quantiser it was
  std::string source_name;  // of the file, without its folder
  std::uint64_t source_bytes = 0;
};

// The source's metadata in their order with general.file_type, general.quantization_version and
// general.alignment brought up to date, split.* and an earlier kazeia.prepared.* left out, and the provenance added
// as kazeia.prepared.*.
Header prepared_header(std::span<const File> parts, const Preparation& preparation, const Provenance& provenance);

}  // namespace kazeia::gguf
