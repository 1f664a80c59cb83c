#include "engine/npu_phase.h"

#include <fmt/format.h>

#include "base/log.h"
#include "npu/device.h"
#include "npu/guard.h"

namespace kazeia {
namespace {

npu::Gate* gate_for(Placement placement) {
  npu::Device* device = placement == Placement::kNpu ? npu::Device::opened() : nullptr;
  return device == nullptr ? nullptr : &device->gate();
}

}  // namespace

NpuGate::NpuGate(Placement placement, bool open) : gate_(gate_for(placement)) {
  if (gate_ != nullptr) gate_->begin_graph(open);
}
NpuGate::~NpuGate() {
  if (gate_ != nullptr) gate_->end_graph();
}

PrivateState::PrivateState(Placement placement) : gate_(gate_for(placement)) {
  if (gate_ == nullptr) return;
  before_ = gate_->private_state();
  gate_->set_private_state(true);
}
PrivateState::~PrivateState() {
  if (gate_ != nullptr) gate_->set_private_state(before_);
}

PlanningForNpu::PlanningForNpu(Placement placement) {
  npu::Gate* gate = gate_for(placement);
  if (gate != nullptr) scope_.emplace(*gate, npu::GateState::kPlanning);
}

bool PlanningForNpu::fall_back_to_private_memory(const std::string& reason) const {
  npu::Device* device = npu::Device::opened();
  if (!scope_ || device == nullptr || device->gate().private_state()) return false;
  const std::string why = fmt::format("the NPU's memory did not suffice for the inference state ({})", reason);
  log(LogLevel::kWarning, why + "; the CPU does everything");
  npu::Guard::declare_failed(npu::FailureKind::kOutOfMemory, why);
  device->gate().set_private_state(true);
  return true;
}

}  // namespace kazeia
