#include "emulated_dsp/ggml_runner.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>

namespace kazeia::emulated_dsp {
namespace {

constexpr std::size_t kGraphNodes = 4;

}  // namespace

GgmlRunner::GgmlRunner(int threads) : threads_(threads) {
  ggml_cpu_init();
  ggml_init_params params{};
  params.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead_custom(kGraphNodes, false);
  params.no_alloc = true;
  context_ = ggml_init(params);
  if (threads_ > 1) {
    ggml_threadpool_params pool = ggml_threadpool_params_default(threads_);
    pool.poll = 0;  // between two batches nobody may spin: the machine has other work
    pool_ = ggml_threadpool_new(&pool);
  }
}

GgmlRunner::~GgmlRunner() {
  if (pool_ != nullptr) ggml_threadpool_free(pool_);
  ggml_free(context_);
}

ggml_tensor* GgmlRunner::wrap(const Tensor& tensor) {
  ggml_tensor* wrapped = ggml_new_tensor_1d(context_, GGML_TYPE_F32, 1);
  wrapped->type = static_cast<ggml_type>(tensor.type);
  for (std::size_t i = 0; i < 4; ++i) {
    wrapped->ne[i] = tensor.ne[i];
    wrapped->nb[i] = tensor.nb[i];
  }
  wrapped->data = tensor.data;
  return wrapped;
}

bool GgmlRunner::run(ggml_op op, std::span<const std::int32_t> params, std::span<const Tensor* const> sources,
                     const Tensor& dst) {
  ggml_reset(context_);
  ggml_cgraph* graph = ggml_new_graph_custom(context_, kGraphNodes, false);
  ggml_tensor* node = wrap(dst);
  node->op = op;
  node->flags |= GGML_TENSOR_FLAG_COMPUTE;
  std::memcpy(node->op_params, params.data(), std::min(params.size_bytes(), sizeof(node->op_params)));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] != nullptr) node->src[i] = wrap(*sources[i]);
  }
  ggml_graph_add_node(graph, node);
  ggml_cplan plan = ggml_graph_plan(graph, threads_, pool_);
  work_.resize(plan.work_size);
  plan.work_data = work_.data();
  return ggml_graph_compute(graph, &plan) == GGML_STATUS_SUCCESS;
}

}  // namespace kazeia::emulated_dsp
