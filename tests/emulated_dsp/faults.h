// Faults on demand. The environment is read on the host's own calling threads, never on the DSP's worker, so a test
// may change it with setenv between two calls. README.md documents every fault.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kazeia::emulated_dsp {

enum class Fault {
  kNone,
  kError,
  kWriteError,
  kReadError,
  kHang,
  kHangRead,
  kHangWrite,
  kLate,
  kLost,
  kLost2e,
  kGarbage,
  kConstant,
  kBadAnswer,
  kWrongSequence,
  kSlowStart,
  kOutOfMemory,
  kMapError,
  kOpenError,
  kOpenHang,
  kStartError,
  kStartHang,
  kStopError,
};

// The fault that applies to a call made now: the configured one if the next batch's number lies in its window.
Fault current_fault();
// The same for a batch that is being written, which it counts.
Fault next_batch_fault();
// KAZEIA_DSP_MEMORY_BYTES; without it 0 under the fault `oom` and no limit otherwise.
std::size_t memory_limit();
// KAZEIA_DSP_DELAY_MS, default 1000.
int delay_ms();
// KAZEIA_DSP_THREADS, default 1.
int executor_threads();

// A session that was lost stays lost until another one is opened.
void lose_session(Fault how);
void restore_session();
// The error that calls get: AEE_ECONNRESET or 0x2e if the session is lost or is to be lost now, else 0.
int lost_error();
// The same for reading answers, which belong to batches already written: only if it was lost before.
int known_loss();

// Counts the fault.
void fault_happened();
// Never returns.
[[noreturn]] void hang_forever();

}  // namespace kazeia::emulated_dsp
