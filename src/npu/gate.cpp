#include "npu/gate.h"

#include <exception>

#include "base/log.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "ggml.h"
#include "npu/guard.h"
#include "npu/shared_memory.h"
#include "tiles/buffer_type.h"

namespace kazeia::npu {
namespace {

Gate* the_gate = nullptr;

std::uint64_t computed_nodes(const ggml_cgraph* graph) {
  std::uint64_t nodes = 0;
  auto* mutable_graph = const_cast<ggml_cgraph*>(graph);  // NOLINT: upstream's accessors take no const
  for (int i = 0; i < ggml_graph_n_nodes(mutable_graph); ++i) {
    if (!ggml_op_is_empty(ggml_graph_node(mutable_graph, i)->op)) ++nodes;
  }
  return nodes;
}

// A weight that both processors can use: as it is in the file, or a matrix whose type has a tile layout.
bool can_share(const ggml_tensor* op) {
  for (const ggml_tensor* source : op->src) {
    if (source == nullptr || !ggml_is_quantized(source->type)) continue;
    const bool matrix = op->op == GGML_OP_MUL_MAT && source == op->src[0] && source->ne[2] == 1 && source->ne[3] == 1;
    if (!matrix || !tiles::has_tiles(static_cast<std::uint32_t>(source->type), source->ne[0], source->ne[1], 2)) {
      return false;
    }
  }
  return true;
}

}  // namespace

// What llama.cpp calls on the device and its backends.
struct GateHooks {
  static Gate& gate() { return *the_gate; }

  static bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) {
    Gate& self = gate();
    switch (self.state_) {
      case GateState::kClosed:
        return false;
      case GateState::kLoading:
        return can_share(op) && self.upstream_supports(op);
      case GateState::kPlanning:
        // Upstream drops its fused delta rule for good if the node is not planned on its layer's device. These graphs
        // are never computed, so the answer may differ from the one at run time.
        return op->op == GGML_OP_GATED_DELTA_NET || self.upstream_supports(op);
      case GateState::kOpen:
        break;
    }
    if (ggml_op_is_empty(op->op)) return true;
    return self.policy_.allows(classify(op)) && self.upstream_supports(op);
  }

  static bool supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    Gate& self = gate();
    if (type == weights_type() || type == state_type()) return true;
    // The scheduler insists that a backend supports its own activations' type, though it will compute nothing here.
    if (self.private_state_ && type == ggml_backend_cpu_buffer_type()) return true;
    return self.upstream_->iface.supports_buft(self.upstream_, type);
  }

  static ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t) {
    if (gate().state_ == GateState::kLoading) return weights_type();
    return gate().private_state_ ? ggml_backend_cpu_buffer_type() : state_type();
  }

  // The CPU's activations, too: one pool for both processors, so that no activation is copied between them and a
  // switch re-plans nothing that was allocated.
  static ggml_backend_buffer_type_t host_buffer_type(ggml_backend_dev_t device) {
    return gate().state_ == GateState::kLoading ? nullptr : buffer_type(device);
  }

  static void note_computing(std::uint64_t& nodes, const ggml_cgraph* graph) {
    Gate& self = gate();
    if (self.switch_pending_) {
      self.switch_pending_ = false;
      const double us = self.since_switch_.elapsed_ms() * 1000;
      self.counters_.switch_us_last = us;
      self.counters_.switch_us_total += us;
    }
    nodes += computed_nodes(graph);
  }

  // Computes and waits: the next piece of the graph runs on the CPU over the same memory, and nobody else would wait.
  static ggml_status compute_on_npu(ggml_backend_t backend, ggml_cgraph* graph) {
    if (Guard::failed()) return GGML_STATUS_FAILED;
    GateCounters& counters = gate().counters_;
    note_computing(counters.npu_nodes, graph);
    ++counters.npu_graphs;
    try {
      const ggml_status status = upstream_backend.graph_compute(backend, graph);
      upstream_backend.synchronize(backend);
      if (status != GGML_STATUS_SUCCESS && !Guard::failed()) {
        Guard::declare_failed(FailureKind::kError, "the NPU's host code refused a graph");
      }
    } catch (const std::exception& exception) {
      Guard::declare_failed(FailureKind::kError, exception.what());
    }
    return Guard::failed() ? GGML_STATUS_FAILED : GGML_STATUS_SUCCESS;
  }

  static ggml_backend_t init_npu(ggml_backend_dev_t device, const char* parameters) {
    ggml_backend_t backend = nullptr;
    try {
      backend = gate().upstream_->iface.init_backend(device, parameters);
    } catch (const std::exception& exception) {
      log(LogLevel::kInfo, exception.what());
    }
    if (backend == nullptr) return nullptr;
    upstream_backend = backend->iface;
    backend->iface.graph_compute = compute_on_npu;
    return backend;
  }

  static ggml_status compute_on_cpu(ggml_backend_t backend, ggml_cgraph* graph) {
    note_computing(gate().counters_.cpu_nodes, graph);
    return cpu_compute(backend, graph);
  }

  static ggml_backend_t init_cpu(ggml_backend_dev_t device, const char* parameters) {
    ggml_backend_t backend = cpu_init(device, parameters);
    // Only of contexts that share a graph with the NPU; others may run on other threads.
    if (backend != nullptr && gate().state_ == GateState::kPlanning) {
      cpu_compute = backend->iface.graph_compute;
      backend->iface.graph_compute = compute_on_cpu;
    }
    return backend;
  }

  static void count_cpu_nodes() {
    ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    cpu_init = cpu->iface.init_backend;
    cpu->iface.init_backend = init_cpu;
  }

  static inline ggml_backend_i upstream_backend{};
  static inline decltype(ggml_backend_device_i::init_backend) cpu_init = nullptr;
  static inline decltype(ggml_backend_i::graph_compute) cpu_compute = nullptr;
};

Gate& Gate::create(ggml_backend_dev_t upstream) {
  static Gate gate;
  if (the_gate != nullptr) return gate;
  the_gate = &gate;
  gate.upstream_ = upstream;
  gate.device_ = *upstream;  // upstream's functions find their session through `context`
  ggml_backend_device_i& iface = gate.device_.iface;
  iface.supports_op = GateHooks::supports_op;
  iface.supports_buft = GateHooks::supports_buft;
  iface.get_buffer_type = GateHooks::buffer_type;
  iface.get_host_buffer_type = GateHooks::host_buffer_type;
  iface.init_backend = GateHooks::init_npu;
  GateHooks::count_cpu_nodes();
  create_shared_types(upstream, &gate.device_);
  return gate;
}

void Gate::begin_graph(bool open) {
  state_ = open ? GateState::kOpen : GateState::kClosed;
  if (open == last_graph_open_) return;
  last_graph_open_ = open;
  ++counters_.switches;
  since_switch_.restart();
  switch_pending_ = true;
}

bool Gate::upstream_supports(const ggml_tensor* op) const {
  if (Guard::failed()) return false;
  return upstream_->iface.supports_op(upstream_, op);
}

}  // namespace kazeia::npu
