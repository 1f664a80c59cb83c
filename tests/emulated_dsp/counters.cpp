#include "emulated_dsp/counters.h"

#include <cstdio>

#include "emulated_dsp/records.h"

namespace kazeia::emulated_dsp {

Counters& counters() {
  // Never destroyed: worker threads may still count while the process exits.
  static auto* const all = new Counters();
  return *all;
}

kazeia_emulated_dsp_counters Counters::snapshot() const {
  kazeia_emulated_dsp_counters copy{};
  copy.batches = batches;
  copy.answers = answers;
  copy.failed_batches = failed_batches;
  copy.dropped_packets = dropped_packets;
  copy.ops = ops;
  for (std::size_t i = 0; i < ops_by_opcode.size(); ++i) copy.ops_by_opcode[i] = ops_by_opcode[i];
  copy.faults = faults;
  copy.rpcmem_buffers = rpcmem_buffers;
  copy.rpcmem_bytes = rpcmem_bytes;
  copy.mapped_buffers = mapped_buffers;
  copy.mapped_bytes = mapped_bytes;
  copy.munmap_calls = munmap_calls;
  copy.dsp_release_calls = dsp_release_calls;
  copy.freed_while_mapped = freed_while_mapped;
  copy.stale_mappings = stale_mappings;
  copy.sessions_open = sessions_open;
  return copy;
}

void Counters::dump() const {
  const auto line = [](const char* name, std::uint64_t value) {
    if (value != 0) std::fprintf(stderr, "emulated DSP: %-20s %llu\n", name, static_cast<unsigned long long>(value));
  };
  line("batches", batches);
  line("answers", answers);
  line("failed batches", failed_batches);
  line("dropped packets", dropped_packets);
  line("faults", faults);
  line("ops", ops);
  for (std::size_t i = 0; i < ops_by_opcode.size(); ++i) {
    line(op_name(static_cast<std::uint32_t>(i)), ops_by_opcode[i]);
  }
  line("weight bytes read", weight_bytes_read);
  line("rpcmem buffers", rpcmem_buffers);
  line("rpcmem bytes", rpcmem_bytes);
  line("rpcmem bytes, peak", rpcmem_bytes_peak);
  line("mapped buffers", mapped_buffers);
  line("mapped bytes", mapped_bytes);
  line("freed while mapped", freed_while_mapped);
  line("stale mappings", stale_mappings);
  line("sessions open", sessions_open);
}

}  // namespace kazeia::emulated_dsp
