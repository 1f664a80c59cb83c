// The counters behind stats.h: one set per process, written by several threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "emulated_dsp/stats.h"

namespace kazeia::emulated_dsp {

struct Counters {
  using Count = std::atomic<std::uint64_t>;
  Count batches, answers, failed_batches, dropped_packets, ops, faults;
  std::array<Count, KAZEIA_EMULATED_DSP_OPCODES> ops_by_opcode;
  Count rpcmem_buffers, rpcmem_bytes;
  Count mapped_buffers, mapped_bytes, munmap_calls, dsp_release_calls, freed_while_mapped, stale_mappings;
  Count sessions_open;
  // For dump() alone.
  Count rpcmem_bytes_peak;
  Count weight_bytes_read;  // tile bytes that matrix products went through

  kazeia_emulated_dsp_counters snapshot() const;
  // To stderr, one line per counter that is not zero.
  void dump() const;
};

Counters& counters();

}  // namespace kazeia::emulated_dsp
