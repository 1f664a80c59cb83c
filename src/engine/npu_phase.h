// The gate as the engine uses it: opened for one graph, set to planning while a context is created. For models that
// are not placed on the NPU all of this does nothing.
#pragma once

#include <optional>
#include <string>

#include "engine/placement.h"
#include "npu/gate.h"

namespace kazeia {

// Around one graph: open for the NPU, or closed. Closed again afterwards.
class [[nodiscard]] NpuGate {
 public:
  NpuGate(Placement placement, bool open);
  ~NpuGate();
  NpuGate(const NpuGate&) = delete;
  NpuGate& operator=(const NpuGate&) = delete;

 private:
  npu::Gate* gate_;
};

// While it lives, contexts keep their state in the CPU's memory.
class [[nodiscard]] PrivateState {
 public:
  explicit PrivateState(Placement placement);
  ~PrivateState();
  PrivateState(const PrivateState&) = delete;
  PrivateState& operator=(const PrivateState&) = delete;

 private:
  npu::Gate* gate_;
  bool before_ = false;
};

// While llama.cpp creates a context.
class [[nodiscard]] PlanningForNpu {
 public:
  explicit PlanningForNpu(Placement placement);
  // The device's memory did not suffice: from now on new contexts use the CPU's. False if there is nothing to fall
  // back from.
  bool fall_back_to_private_memory(const std::string& reason) const;

 private:
  std::optional<npu::GateScope> scope_;
};

}  // namespace kazeia
