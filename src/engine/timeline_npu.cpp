// The part of a timeline that concerns the NPU: which pieces it takes, how its results are witnessed, and how the CPU
// takes its place when it fails.

#include <algorithm>
#include <cmath>
#include <exception>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/abandoned.h"
#include "engine/agreement.h"
#include "engine/npu_phase.h"
#include "engine/snapshot.h"
#include "engine/timeline.h"
#include "llama-ext.h"
#include "llama.h"
#include "npu/device.h"
#include "npu/gate.h"
#include "npu/guard.h"
#include "npu/shared_memory.h"

namespace kazeia {
namespace {

bool all_finite(const float* values, std::size_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

}  // namespace

bool Timeline::npu_takes(std::size_t width) const {
  if (model_->placement() != Placement::kNpu || options_.npu.part == NpuPart::kNone) return false;
  const npu::Device* device = npu::Device::opened();
  if (device == nullptr || npu::Guard::failed()) return false;
  return options_.npu.part == NpuPart::kAll || width >= options_.npu.prefill_min_tokens;
}

// Back to the state before the piece: tokens_ has not grown yet. `wipe`: a broken device may have written it, and
// upstream empties a recurrent state by multiplying it with 0, which keeps a NaN.
bool Timeline::undo(const RecurrentSnapshot& before, bool wipe) {
  llama_memory_t memory = llama_get_memory(context_);
  if (tokens_.empty()) {
    llama_memory_clear(memory, wipe);
    return true;
  }
  if (model_->has_recurrent_state()) return before.restore(context_);
  return llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(tokens_.size()), -1) &&
         state_ends_at(context_, tokens_.size());
}

// Upstream reserved its buffers for graphs as they were planned while the context was created. Both real placements,
// wide and narrow, are reserved here, so that nothing is allocated later: not at a switch, and not when the CPU has to
// take over from a device that may have no memory left to give.
bool Timeline::reserve_for_both() {
  const auto wide = static_cast<std::uint32_t>(ubatch_);
  const std::uint32_t outputs = std::min<std::uint32_t>(2, wide);
  try {
    for (const bool open : {true, false}) {
      if (open && npu::Guard::failed()) continue;
      const npu::GateScope gate(npu::Device::opened()->gate(), open ? npu::GateState::kOpen : npu::GateState::kClosed);
      if (llama_graph_reserve(context_, wide, 1, outputs) == nullptr) return false;
      if (llama_graph_reserve(context_, 1, 1, 1) == nullptr) return false;
    }
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

// The logits after `token` as the CPU computes them; the state is as before.
Result<std::vector<float>> Timeline::witness(Token token, const RecurrentSnapshot& before) {
  const Stopwatch watch;
  std::string reason;
  const int status = run({{&token, 1}, false, true}, Processor::kCpu, reason);
  if (status != 0) return poison(reason);
  const float* row = llama_get_logits_ith(context_, -1);
  std::vector<float> logits;
  if (row != nullptr) logits.assign(row, row + model_->vocabulary_size());
  if (!undo(before, false)) return poison("the state could not be put back");
  ++npu_.witnesses;
  npu_.witness_ms += watch.elapsed_ms();
  return logits;
}

Status Timeline::decode_on_npu(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel) {
  RecurrentSnapshot before;
  // Without a way back a failing device would cost the conversation.
  if (model_->has_recurrent_state() && !before.take(context_, tokens_.size())) {
    return decode_on_cpu(piece, want_logits, cancel);
  }
  std::vector<float> expected;
  if (options_.npu.witness == Witness::kEveryPiece && piece.size() > 1) {
    KAZEIA_ASSIGN(expected, witness(piece.front(), before));
  }

  active_cancel_ = cancel;
  std::string reason;
  const int status = run({piece, !expected.empty(), want_logits}, Processor::kNpu, reason);
  active_cancel_ = nullptr;
  constexpr int kAborted = 2;
  constexpr int kNoMemory = -2;
  if (status == kAborted && !npu::Guard::failed()) {
    if (undo(before, false)) return Error(ErrorCode::kCancelled, "reading the prompt was cancelled");
    return poison(reason);
  }
  if (status == 0 && !npu::Guard::failed()) {
    const auto width = static_cast<std::size_t>(model_->vocabulary_size());
    const float* first = expected.empty() ? nullptr : llama_get_logits_ith(context_, 0);
    const float* last = want_logits ? llama_get_logits_ith(context_, -1) : nullptr;
    const double agreed = first != nullptr ? agreement({first, width}, expected) : 1.0;
    if (agreed < kLeastAgreement) {
      reason = wrong_results(agreed);
    } else if (last != nullptr && !all_finite(last, width)) {
      reason = "its results are not numbers";
    } else {
      tokens_.insert(tokens_.end(), piece.begin(), piece.end());
      has_logits_ = want_logits;
      return {};
    }
    npu::Guard::declare_failed(npu::FailureKind::kGarbage, reason);
  }
  if (status == kNoMemory) npu::Guard::declare_failed(npu::FailureKind::kOutOfMemory, reason);
  if (context_ == nullptr) return poison(reason);
  KAZEIA_TRY(give_up_npu(before, reason, status == kNoMemory));
  // Not to be cancelled: it writes over what the device left in the cells of this piece.
  return decode_on_cpu(piece, want_logits, nullptr);
}

Status Timeline::give_up_npu(const RecurrentSnapshot& before, const std::string& reason, bool no_memory) {
  if (!npu::Guard::failed()) npu::Guard::declare_failed(npu::FailureKind::kError, reason);
  const npu::GuardStatus status = npu::Guard::status();
  npu_.failure = status.reason.empty() ? reason : status.reason;
  log(LogLevel::kWarning, fmt::format("the NPU failed: {}; the CPU goes on", npu_.failure));
  if (!status.device_may_still_write && !no_memory && undo(before, true)) return {};
  return move_to_private_memory(status.device_may_still_write);
}

// A device whose memory does not suffice has none for the CPU's graphs either, and one that fell silent may still write
// to the state that it was given: that state is left to it, and everything is read again into memory of our own.
Status Timeline::move_to_private_memory(bool device_may_still_write) {
  npu::Device::opened()->gate().set_private_state(true);
  if (device_may_still_write) {
    abandon(context_);
  } else {
    llama_free(context_);
  }
  context_ = nullptr;
  const Tokens read = std::move(tokens_);
  tokens_.clear();
  Status created = create_context();
  if (!created.ok()) {
    poisoned_ = true;  // reset() tries again
    return created;
  }
  for (std::size_t done = 0; done < read.size();) {
    const std::size_t width = std::min(ubatch_, read.size() - done);
    KAZEIA_TRY(decode_on_cpu(std::span(read).subspan(done, width), false, nullptr));
    done += width;
  }
  return {};
}

NpuUse Timeline::npu_use() const {
  NpuUse use = npu_;
  npu::Device* device = model_->placement() == Placement::kNpu ? npu::Device::opened() : nullptr;
  if (device == nullptr) return use;
  if (use.failure.empty()) use.failure = npu::Guard::status().reason;
  const npu::GateCounters& gate = device->gate().counters();
  use.npu_nodes = gate.npu_nodes;
  use.cpu_nodes = gate.cpu_nodes;
  use.npu_graphs = gate.npu_graphs;
  use.switches = gate.switches;
  use.switch_us_last = gate.switch_us_last;
  use.switch_us_mean = gate.switches == 0 ? 0 : gate.switch_us_total / static_cast<double>(gate.switches);
  const npu::MemoryCounters memory = npu::memory_counters();
  use.weight_bytes_resident = memory.weight_bytes_resident;
  use.weight_bytes_copied = memory.weight_bytes_copied;
  use.state_bytes_resident = memory.state_bytes_resident;
  use.tensor_records = memory.tensor_records;
  return use;
}

}  // namespace kazeia
