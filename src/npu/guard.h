// Between upstream's Hexagon host code and the driver: upstream aborts on most device errors, throws through
// llama_decode on some, and waits forever for a silent device. The guard answers in the device's place instead.
//
// Up to the first failure every call goes to the driver and every batch is remembered until it is answered. A
// failure inside a session sets failed(), and from then on the driver is not called for that session any more:
// batches are taken and answered as done, mappings and releases succeed. What upstream computed is then worthless
// and the engine must discard it: close the gate, restore a checkpoint, replay on the CPU. Memory stays valid.
// A failure while a session is being set up is passed on (upstream copes and reports no device) and remembered.
//
// Process-wide, as the driver is. status(), failed() and declare_failed() may be called from any thread; upstream's
// own calls come from one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kazeia::npu {

enum class FailureKind {
  kNone,
  kError,        // the device or the queue reported an error, or answered something else than was asked
  kLost,         // the session is gone: the DSP's process died or was restarted
  kSilent,       // no answer within the deadline
  kMap,          // a buffer could not be mapped into a running session
  kGarbage,      // it answered, but what it computed is wrong (declared by the engine)
  kOutOfMemory,  // the driver had no shared memory left; upstream was told, failed() stays false
  kStart,        // the session could not be set up; upstream was told, failed() is true only after a silence
};
std::string_view failure_kind_name(FailureKind kind);  // "none", "error", "lost", ...

struct GuardStatus {
  FailureKind kind = FailureKind::kNone;
  std::string reason;  // one line without a trailing period, "" while kind is kNone
  std::uint64_t batches_written = 0;
  std::uint64_t batches_answered = 0;               // by the device
  std::uint64_t batches_answered_in_its_place = 0;  // by the guard
  // Freed by upstream but kept, because the device may write there or its driver hangs. Bounded by what was allocated.
  std::uint64_t leaked_bytes = 0;
  // After a failure: batches were given to the device that it has neither answered nor lost with its session. What
  // they write (activations, KV cache, recurrent state) can change at any time.
  bool device_may_still_write = false;
};

struct GuardOptions {
  // How long the device may answer nothing while it has work, and any other call inside a session may take. A batch
  // has at most 1280 operations: well under a second on the silicon this is for.
  std::int64_t deadline_ms = 10'000;
  // How long each call may take that sets a session up; loading the DSP library can take seconds.
  std::int64_t start_deadline_ms = 20'000;
};
// `options` with what KAZEIA_NPU_DEADLINE_MS and KAZEIA_NPU_START_DEADLINE_MS say (1 to 3600000; anything else is
// ignored with a warning).
GuardOptions with_environment(GuardOptions options);

struct DriverTable;

class Guard {
 public:
  // Puts the guard in front of upstream's driver table. Call after upstream's htpdrv_init() succeeded and before its
  // backend is registered; a second call changes nothing. kEngine if the driver is not loaded.
  static Status install(const GuardOptions& options);
  // Over any table of variables that hold driver functions, which must outlive the guard.
  static Status install_over(const DriverTable& table, const GuardOptions& options);
  // Gives the variables their functions back and forgets everything. No call may be under way. For tests: upstream
  // cannot go on with a session whose answers the guard owes.
  static void uninstall();

  static GuardStatus status();
  // Cheap: for after every graph. False without a guard.
  static bool failed() noexcept;
  // The engine found that the device cannot be used. Waits, at most one deadline, until the device has answered what
  // it was given, so that nothing changes under the engine afterwards. The first failure of all is the one kept.
  static void declare_failed(FailureKind kind, std::string reason);
};

}  // namespace kazeia::npu
