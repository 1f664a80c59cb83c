// How a timeline uses the NPU, and what it did for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kazeia {

enum class NpuPart {
  kNone,     // the model's weights lie in shared memory, the CPU does everything
  kPrefill,  // pieces of a prompt on the NPU, decode on the CPU
  kAll,      // every graph on the NPU, to compare
};

// How often a piece that the NPU computed is checked: its first token is then computed by the CPU, too, and the logits
// after it are compared. A witness costs one decode step.
enum class Witness { kEveryPiece, kNever };

struct NpuOptions {
  NpuPart part = NpuPart::kPrefill;
  // Narrower pieces run on the CPU: below it, a crossing costs more than it saves. Upstream pins some nodes of graphs
  // narrower than 32 tokens.
  std::size_t prefill_min_tokens = 32;
  Witness witness = Witness::kEveryPiece;
};

struct NpuUse {
  std::uint64_t prefill_tokens = 0;      // prompt tokens that the NPU read
  std::uint64_t cpu_prefill_tokens = 0;  // and the CPU
  std::uint64_t witnesses = 0;
  double witness_ms = 0;
  std::string failure;  // why the CPU took over; empty: it did not
  // Of the process, not of this timeline alone:
  std::uint64_t npu_nodes = 0;
  std::uint64_t cpu_nodes = 0;
  std::uint64_t npu_graphs = 0;
  std::uint64_t switches = 0;
  double switch_us_last = 0;
  double switch_us_mean = 0;
  std::uint64_t weight_bytes_resident = 0;
  std::uint64_t weight_bytes_copied = 0;
  std::uint64_t state_bytes_resident = 0;
  std::uint64_t tensor_records = 0;
};

}  // namespace kazeia
