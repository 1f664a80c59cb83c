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
  Count rpcmem_buffers, rpcmem_bytes, rpcmem_bytes_peak, rpcmem_allocations;
  Count mapped_buffers, mapped_bytes, mmap_calls, munmap_calls, dsp_release_calls, freed_while_mapped, stale_mappings;
  Count sessions_opened, sessions_open, starts, weight_bytes_read;

  kazeia_emulated_dsp_counters snapshot() const;
  // To stderr, one line per counter that is not zero.
  void dump() const;
};

Counters& counters();

}  // namespace kazeia::emulated_dsp
