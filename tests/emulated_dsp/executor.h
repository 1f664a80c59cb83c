// Executes ops one by one: each record becomes the ggml CPU op of the same meaning over the same memory; products
// with tiled weights are computed by tiled_product. One Executor per queue; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "emulated_dsp/batch.h"
#include "emulated_dsp/ggml_runner.h"
#include "emulated_dsp/records.h"
#include "emulated_dsp/tensor.h"

namespace kazeia::emulated_dsp {

// How ggml's CPU op wants its tensors; the executor copies what lies differently.
enum class Needs {
  kRows,        // elements of a row follow each other
  kContiguous,  // everything follows everything
  kFloats,      // contiguous and F32
};

class Executor {
 public:
  explicit Executor(int threads) : runner_(threads) {}

  // HTP_STATUS_OK, or why not: INVAL_PARAMS for tensors that do not fit the op, NO_SUPPORT for an op or a mixture of
  // types that is not emulated. Nothing that a record can say makes ggml abort.
  htp_status execute(const Op& op);

  // For the op families below.
  htp_status compute(ggml_op ggml, std::span<const std::int32_t> params, std::initializer_list<const Tensor*> sources,
                     const Tensor& dst, Needs needs);
  const Tensor* prepared(const Tensor* tensor, Needs needs);
  Tensor temporary(std::uint32_t type, const std::array<std::int64_t, 4>& ne);
  int threads() const { return runner_.threads(); }

 private:
  GgmlRunner runner_;
  std::deque<std::vector<std::uint8_t>> memory_;  // of the op being executed
  std::deque<Tensor> tensors_;
};

// One function per family (the file of that name). HTP_STATUS_NO_SUPPORT: not of this family.
htp_status execute_elementwise(Executor& executor, const Op& op);
htp_status execute_movement(Executor& executor, const Op& op);
htp_status execute_product(Executor& executor, const Op& op);
htp_status execute_sequence(Executor& executor, const Op& op);
htp_status execute_fence(const Op& op, htp_status so_far);

bool is_fence(std::uint32_t opcode);
// Every index of `indices` (I32 or I64) lies in [0, limit).
bool indices_within(const Tensor& indices, std::int64_t limit);

}  // namespace kazeia::emulated_dsp
