// Runs one op of ggml's CPU backend over memory that is not ggml's.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

#include "emulated_dsp/tensor.h"

struct ggml_threadpool;

namespace kazeia::emulated_dsp {

class GgmlRunner {
 public:
  explicit GgmlRunner(int threads);
  ~GgmlRunner();
  GgmlRunner(const GgmlRunner&) = delete;
  GgmlRunner& operator=(const GgmlRunner&) = delete;

  // Computes `op` into `dst`. The caller has checked everything that ggml would assert. A null source is absent.
  // False: ggml refused.
  bool run(ggml_op op, std::span<const std::int32_t> params, std::span<const Tensor* const> sources, const Tensor& dst);

  int threads() const { return threads_; }

 private:
  ggml_tensor* wrap(const Tensor& tensor);

  int threads_;
  ggml_threadpool* pool_ = nullptr;
  ggml_context* context_ = nullptr;
  std::vector<std::uint8_t> work_;
};

}  // namespace kazeia::emulated_dsp
