// The NPU of this machine: found, opened, guarded. One per process.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace kazeia::npu {

class Gate;
struct OpPolicy;

struct DeviceInfo {
  std::string name;      // "HTP0"
  int architecture = 0;  // 79 = V79
  std::string hardware;  // "threads 8, hvx 8, hmx 1, vtcm 8 MB"
  std::size_t sessions = 0;
  std::uint64_t memory_window_bytes = 0;  // that one batch of operations can address
  double open_ms = 0;
};

class Device {
 public:
  // Loads the driver, puts the guard between it and upstream's host code, opens a session. The first call decides for
  // the process; later ones give the same answer. kUnsupported: no driver or no session, with the reason.
  static Result<Device*> open();
  // The opened device, or nullptr.
  static Device* opened();

  const DeviceInfo& info() const { return info_; }
  // Which classes of operations prefill gives to it, from the next graph on.
  void set_policy(const OpPolicy& policy);
  Gate& gate() { return *gate_; }

 private:
  Device() = default;
  static Result<Device*> try_open();

  DeviceInfo info_;
  Gate* gate_ = nullptr;
};

}  // namespace kazeia::npu
