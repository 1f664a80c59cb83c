// What the emulated DSP has counted. A plain C struct, so that a test that loaded the library with dlopen can ask
// for it: auto stats = (kazeia_emulated_dsp_stats_function)dlsym(library, "kazeia_emulated_dsp_stats").
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KAZEIA_EMULATED_DSP_OPCODES 64

typedef struct kazeia_emulated_dsp_counters {
  uint64_t batches;                                     // accepted by dspqueue_write
  uint64_t answers;                                     // handed out by dspqueue_read
  uint64_t failed_batches;                              // answered with a status other than OK
  uint64_t dropped_packets;                             // not a batch request at all: never answered, as on the device
  uint64_t ops;                                         // executed
  uint64_t ops_by_opcode[KAZEIA_EMULATED_DSP_OPCODES];  // index: enum htp_op_code
  uint64_t faults;                                      // calls or batches that a fault changed

  uint64_t rpcmem_buffers;  // alive now
  uint64_t rpcmem_bytes;

  uint64_t mapped_buffers;  // fastrpc_mmap without its fastrpc_munmap yet
  uint64_t mapped_bytes;
  uint64_t munmap_calls;        // successful ones
  uint64_t dsp_release_calls;   // the host told the DSP to let go of a buffer
  uint64_t freed_while_mapped;  // rpcmem_free of a buffer that was still mapped: a host that forgot to unmap
  uint64_t stale_mappings;      // a batch named a buffer whose memory behind the same fd had been replaced

  uint64_t sessions_open;  // now
} kazeia_emulated_dsp_counters;

typedef void (*kazeia_emulated_dsp_stats_function)(kazeia_emulated_dsp_counters* counters);
// Copies the counters of this process.
void kazeia_emulated_dsp_stats(kazeia_emulated_dsp_counters* counters);

#ifdef __cplusplus
}
#endif
