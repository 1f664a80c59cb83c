#include "npu/op_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "base/clock.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "npu/device.h"
#include "npu/gate.h"
#include "npu/guard.h"
#include "npu/shared_memory.h"

namespace kazeia::npu {
namespace {

// Of a small model: heads of 64, a state of 128 x 128, one row of tiles more than a power of two.
constexpr std::int64_t kTokens = 48;
constexpr std::int64_t kColumns = 256;
constexpr std::int64_t kRows = 96;
constexpr std::int64_t kHead = 64;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kCells = 256;

// A product of f16 values against one of int8 values with a scale per 32: half a percent of the result, observed.
constexpr double kProductTolerance = 0.03;
constexpr double kHalfTolerance = 5e-3;  // a few roundings to f16
constexpr double kExactTolerance = 1e-3;

using Context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using Buffer = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;
using Backend = std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)>;

// The graph of one operation. Weights and activations are tensors of two contexts, because they live in two buffers.
class Graph {
 public:
  Graph() : weights_(make()), state_(make()) {}
  ggml_context* state() { return state_.get(); }

  ggml_tensor* weight(ggml_type type, std::int64_t columns, std::int64_t rows = 1) {
    return named(ggml_new_tensor_2d(weights_.get(), type, columns, rows));
  }
  ggml_tensor* input(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1, ggml_type type = GGML_TYPE_F32) {
    return named(ggml_new_tensor_3d(state_.get(), type, a, b, c));
  }
  // Numbers 0, 1, 2, ... modulo `below`.
  ggml_tensor* indices(std::int64_t count, std::int64_t below, ggml_type type = GGML_TYPE_I32) {
    ggml_tensor* tensor = input(count, 1, 1, type);
    counters_.emplace_back(tensor, below);
    return tensor;
  }

  // Gives every tensor its memory and the inputs their values. False if the driver has none left.
  bool allocate() {
    if (ggml_get_first_tensor(weights_.get()) != nullptr) {
      weight_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(weights_.get(), weights_type()));
      if (weight_buffer_ == nullptr) return false;
      ggml_backend_buffer_set_usage(weight_buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    state_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(state_.get(), state_type()));
    if (state_buffer_ == nullptr) return false;
    std::minstd_rand random(7);
    for (ggml_context* context : {weights_.get(), state_.get()}) {
      for (ggml_tensor* t = ggml_get_first_tensor(context); t != nullptr; t = ggml_get_next_tensor(context, t)) {
        if (t->op == GGML_OP_NONE && t->view_src == nullptr) fill(t, random);
      }
    }
    return true;
  }

 private:
  static Context make() { return {ggml_init({ggml_tensor_overhead() * 32, nullptr, true}), &ggml_free}; }
  ggml_tensor* named(ggml_tensor* tensor) {
    ggml_set_name(tensor, fmt::format("t{}", count_++).c_str());
    return tensor;
  }
  void fill(ggml_tensor* tensor, std::minstd_rand& random) const {
    for (const auto& [counter, below] : counters_) {
      if (counter != tensor) continue;
      for (std::int64_t i = 0; i < ggml_nelements(tensor); ++i) {
        if (tensor->type == GGML_TYPE_I64) {
          static_cast<std::int64_t*>(tensor->data)[i] = i % below;
        } else {
          static_cast<std::int32_t*>(tensor->data)[i] = static_cast<std::int32_t>(i % below);
        }
      }
      return;
    }
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    for (float& value : values) value = uniform(random);
    if (tensor->type == GGML_TYPE_F32) {
      ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
      return;
    }
    std::vector<std::uint8_t> bytes(ggml_nbytes(tensor));
    ggml_quantize_chunk(tensor->type, values.data(), bytes.data(), 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
  }

  int count_ = 0;
  Context weights_;
  Context state_;
  std::vector<std::pair<ggml_tensor*, std::int64_t>> counters_;
  Buffer weight_buffer_{nullptr, &ggml_backend_buffer_free};
  Buffer state_buffer_{nullptr, &ggml_backend_buffer_free};
};

struct Case {
  std::string name;
  double tolerance;
  std::function<ggml_tensor*(Graph&)> build;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4,
                               GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_F16}) {
    all.push_back({fmt::format("MUL_MAT {}", ggml_type_name(type)), kProductTolerance, [type](Graph& g) {
                     return ggml_mul_mat(g.state(), g.weight(type, kColumns, kRows), g.input(kColumns, kTokens));
                   }});
  }
  all.push_back({"RMS_NORM", kExactTolerance,
                 [](Graph& g) { return ggml_rms_norm(g.state(), g.input(kColumns, kTokens), 1e-6f); }});
  all.push_back({"L2_NORM", kExactTolerance,
                 [](Graph& g) { return ggml_l2_norm(g.state(), g.input(kColumns, kTokens), 1e-6f); }});
  all.push_back({"MUL by a row", kExactTolerance, [](Graph& g) {
                   return ggml_mul(g.state(), g.input(kColumns, kTokens), g.weight(GGML_TYPE_F32, kColumns));
                 }});
  all.push_back({"ADD", kExactTolerance,
                 [](Graph& g) { return ggml_add(g.state(), g.input(kColumns, kTokens), g.input(kColumns, kTokens)); }});
  all.push_back(
      {"SCALE", kExactTolerance, [](Graph& g) { return ggml_scale(g.state(), g.input(kColumns, kTokens), 0.37f); }});
  all.push_back(
      {"SIGMOID", kHalfTolerance, [](Graph& g) { return ggml_sigmoid(g.state(), g.input(kColumns, kTokens)); }});
  all.push_back({"SILU", kHalfTolerance, [](Graph& g) { return ggml_silu(g.state(), g.input(kColumns, kTokens)); }});
  all.push_back(
      {"SOFTPLUS", kHalfTolerance, [](Graph& g) { return ggml_softplus(g.state(), g.input(kColumns, kTokens)); }});
  all.push_back({"SWIGLU", kHalfTolerance, [](Graph& g) {
                   return ggml_swiglu_split(g.state(), g.input(kColumns, kTokens), g.input(kColumns, kTokens));
                 }});
  const auto rope = [](int mode, bool sections) {
    return [mode, sections](Graph& g) {
      ggml_tensor* x = g.input(kHead, kHeads, kTokens);
      if (!sections) {
        return ggml_rope_ext(g.state(), x, g.indices(kTokens, kTokens), nullptr, kHead, mode, 4096, 1e6f, 1, 0, 1, 32,
                             1);
      }
      int parts[4] = {11, 11, 10, 0};
      return ggml_rope_multi(g.state(), x, g.indices(4 * kTokens, kTokens), nullptr, kHead, parts, mode, 4096, 1e6f, 1,
                             0, 1, 32, 1);
    };
  };
  all.push_back({"ROPE neox", kHalfTolerance, rope(GGML_ROPE_TYPE_NEOX, false)});
  all.push_back({"ROPE imrope", kHalfTolerance, rope(GGML_ROPE_TYPE_IMROPE, true)});
  all.push_back({"FLASH_ATTN_EXT", kProductTolerance, [](Graph& g) {
                   ggml_tensor* mask = g.input(kCells, kTokens, 1, GGML_TYPE_F16);
                   return ggml_flash_attn_ext(g.state(), g.input(kHead, kTokens, kHeads),
                                              g.input(kHead, kCells, kHeads / 2, GGML_TYPE_F16),
                                              g.input(kHead, kCells, kHeads / 2, GGML_TYPE_F16), mask, 0.125f, 0, 0);
                 }});
  all.push_back({"SET_ROWS f16", kHalfTolerance, [](Graph& g) {
                   return ggml_set_rows(g.state(), g.input(kColumns, kCells, 1, GGML_TYPE_F16),
                                        g.input(kColumns, kTokens), g.indices(kTokens, kCells, GGML_TYPE_I64));
                 }});
  all.push_back({"GET_ROWS", kExactTolerance, [](Graph& g) {
                   return ggml_get_rows(g.state(), g.input(kColumns, kCells), g.indices(kTokens, kCells));
                 }});
  all.push_back({"CONT of a transposed matrix", kExactTolerance,
                 [](Graph& g) { return ggml_cont(g.state(), ggml_transpose(g.state(), g.input(kColumns, kTokens))); }});
  all.push_back({"CPY f32 to f16", kHalfTolerance, [](Graph& g) {
                   return ggml_cpy(g.state(), g.input(kColumns, kTokens), g.input(kColumns, kTokens, 1, GGML_TYPE_F16));
                 }});
  all.push_back({"CONCAT", kExactTolerance, [](Graph& g) {
                   return ggml_concat(g.state(), g.input(kColumns, kTokens), g.input(kColumns, kTokens), 1);
                 }});
  all.push_back({"SSM_CONV", kHalfTolerance, [](Graph& g) {
                   return ggml_ssm_conv(g.state(), g.input(kTokens + 3, kColumns),
                                        g.weight(GGML_TYPE_F32, 4, kColumns));
                 }});
  all.push_back({"GATED_DELTA_NET", kProductTolerance, [](Graph& g) {
                   constexpr std::int64_t kState = 128;
                   ggml_context* c = g.state();
                   const auto heads = [&] {
                     return ggml_reshape_4d(c, g.input(kState, kHeads, kTokens), kState, kHeads, kTokens, 1);
                   };
                   // Keys and queries of length 1 and gates below 0, as the layer makes them: otherwise the state
                   // explodes.
                   ggml_tensor* q = ggml_l2_norm(c, heads(), 1e-6f);
                   ggml_tensor* k = ggml_l2_norm(c, heads(), 1e-6f);
                   ggml_tensor* gate = ggml_neg(c, ggml_sigmoid(c, g.input(1, kHeads, kTokens)));
                   ggml_tensor* beta = ggml_sigmoid(c, g.input(1, kHeads, kTokens));
                   ggml_tensor* state = ggml_reshape_4d(c, g.input(kState, kState, kHeads), kState, kState, kHeads, 1);
                   return ggml_gated_delta_net(c, q, k, heads(), ggml_reshape_4d(c, gate, 1, kHeads, kTokens, 1),
                                               ggml_reshape_4d(c, beta, 1, kHeads, kTokens, 1), state, 1);
                 }});
  return all;
}

std::vector<float> values_of(const ggml_tensor* tensor) {
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
  if (tensor->type == GGML_TYPE_F16) {
    ggml_fp16_to_fp32_row(static_cast<const ggml_fp16_t*>(tensor->data), values.data(), ggml_nelements(tensor));
  } else {
    std::copy_n(static_cast<const float*>(tensor->data), values.size(), values.begin());
  }
  return values;
}

std::vector<std::uint8_t> bytes_of(const ggml_tensor* tensor) {
  const auto* bytes = static_cast<const std::uint8_t*>(tensor->data);
  return {bytes, bytes + ggml_nbytes(tensor)};
}

double largest_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double size = 1e-30;
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) return HUGE_VAL;
    size = std::max(size, std::abs(static_cast<double>(expected[i])));
    error = std::max(error, std::abs(static_cast<double>(expected[i]) - static_cast<double>(actual[i])));
  }
  return error / size;
}

class Checker {
 public:
  explicit Checker(Device& device)
      : gate_(device.gate()),
        npu_(ggml_backend_dev_init(gate_.device(), nullptr), &ggml_backend_free),
        cpu_(ggml_backend_cpu_init(), &ggml_backend_free) {
    if (cpu_ != nullptr) ggml_backend_cpu_set_n_threads(cpu_.get(), 1);
  }
  bool ready() const { return npu_ != nullptr && cpu_ != nullptr; }

  Result<OpCheck> run(const Case& test) {
    Graph graph;
    ggml_tensor* op = test.build(graph);
    if (!graph.allocate()) {
      return Error(ErrorCode::kEngine, "the NPU's driver has no memory for a check of 1 MiB", "Restart the device");
    }
    OpCheck check;
    check.name = test.name;
    check.tolerance = test.tolerance;
    check.op_class = classify(op);
    check.supported = gate_.upstream_supports(op);

    const Context nodes(ggml_init({ggml_graph_overhead() + 1024, nullptr, true}), &ggml_free);
    ggml_cgraph* inputs = ggml_new_graph(nodes.get());
    ggml_build_forward_expand(inputs, op);
    // An operation that writes into one of its sources starts from the same bytes on both processors.
    const std::vector<std::uint8_t> before = bytes_of(op);
    ggml_backend_graph_compute(cpu_.get(), inputs);  // what the node reads, too
    check.cpu_us = timed(cpu_.get(), op);
    if (!check.supported) return check;
    const std::vector<float> expected = values_of(op);
    std::copy(before.begin(), before.end(), static_cast<std::uint8_t*>(op->data));
    (void)timed(npu_.get(), op);  // maps the buffers
    check.npu_us = timed(npu_.get(), op);
    if (Guard::failed()) return check;
    check.error = largest_error(expected, values_of(op));
    check.correct = check.error <= check.tolerance;
    return check;
  }

 private:
  // Microseconds of the node alone.
  static double timed(ggml_backend_t backend, ggml_tensor* op) {
    const Context memory(ggml_init({ggml_graph_overhead() + 1024, nullptr, true}), &ggml_free);
    ggml_cgraph* graph = ggml_new_graph(memory.get());
    graph_add(graph, op);
    const Stopwatch watch;
    ggml_backend_graph_compute(backend, graph);
    return watch.elapsed_ms() * 1000;
  }
  static void graph_add(ggml_cgraph* graph, ggml_tensor* op) {
    ggml_graph_add_node(graph, op);
    op->flags |= GGML_TENSOR_FLAG_COMPUTE;
  }

  Gate& gate_;
  Backend npu_;
  Backend cpu_;
};

}  // namespace

Result<std::vector<OpCheck>> check_ops(Device& device) {
  Checker checker(device);
  if (!checker.ready()) return Error(ErrorCode::kEngine, "the NPU gave no backend", "Restart the device");
  std::vector<OpCheck> checks;
  for (const Case& test : cases()) {
    KAZEIA_ASSIGN(OpCheck check, checker.run(test));
    checks.push_back(std::move(check));
    if (Guard::failed()) break;
  }
  return checks;
}

}  // namespace kazeia::npu
