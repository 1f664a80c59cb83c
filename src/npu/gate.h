// The gate: the device that llama.cpp is given in the NPU's place.
//
// Upstream's scheduler asks a device for every graph node whether it runs it. The gate answers for the NPU: closed, it
// runs nothing, and the whole graph falls to the CPU, which reads the same memory; open, it runs what the op policy
// allows and upstream's host code supports. A phase switch is therefore one flag. What the gate decides holds
// when a graph is *planned*; llama.cpp reuses a planned graph for the next one of the same width, so whoever changes
// the gate between two graphs of one width must drop the cached one (engine/timeline.cpp does).
//
// Threads: one thread at a time, as upstream's session is.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "ggml-backend-impl.h"
#include "npu/op_policy.h"

namespace kazeia::npu {

enum class GateState {
  kLoading,   // weights are being placed: everything that the NPU could run has its weights in shared memory
  kPlanning,  // a context is being created: buffers are reserved for the largest NPU graph
  kOpen,      // prefill
  kClosed,    // decode
};

struct GateCounters {
  std::uint64_t switches = 0;  // graphs for the other processor than the one before
  double switch_us_last = 0;   // from begin_graph() to the first node computed: planning the graph included
  double switch_us_total = 0;
  std::uint64_t npu_graphs = 0;  // pieces of graphs that the NPU computed
  std::uint64_t npu_nodes = 0;   // graph nodes that the NPU computed, views not counted
  std::uint64_t cpu_nodes = 0;   // and the CPU, in contexts of models that are placed on the NPU
};

class Gate {
 public:
  // `upstream` is the Hexagon device; it must outlive the gate. One gate per process.
  static Gate& create(ggml_backend_dev_t upstream);

  ggml_backend_dev_t device() { return &device_; }

  GateState state() const { return state_; }
  void set_state(GateState state) { state_ = state; }
  // Opens or closes for the graph that is planned and computed next; counts a switch if the last one was the other way.
  void begin_graph(bool open);
  void end_graph() { state_ = GateState::kClosed; }
  void set_policy(const OpPolicy& policy) { policy_ = policy; }
  // Contexts created from now on keep their state in memory that the device cannot reach. After a device fell silent:
  // it may still write where it was told to.
  void set_private_state(bool on) { private_state_ = on; }
  bool private_state() const { return private_state_; }

  const GateCounters& counters() const { return counters_; }

  // Whether the NPU could run it, whatever the policy says.
  bool upstream_supports(const ggml_tensor* op) const;

 private:
  friend struct GateHooks;
  Gate() = default;

  ggml_backend_device device_{};
  ggml_backend_dev_t upstream_ = nullptr;
  OpPolicy policy_;
  GateState state_ = GateState::kClosed;
  bool private_state_ = false;
  bool last_graph_open_ = false;
  bool switch_pending_ = false;
  Stopwatch since_switch_;
  GateCounters counters_;
};

// Sets a state and puts the old one back.
class [[nodiscard]] GateScope {
 public:
  GateScope(Gate& gate, GateState state) : gate_(gate), before_(gate.state()) { gate_.set_state(state); }
  ~GateScope() { gate_.set_state(before_); }
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;

 private:
  Gate& gate_;
  GateState before_;
};

}  // namespace kazeia::npu
