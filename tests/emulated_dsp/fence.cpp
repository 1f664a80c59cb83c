// Fences: two words in shared memory, {sequence, status}, by which the host and other queues learn how far this one is.
#include <atomic>
#include <chrono>
#include <thread>

#include "emulated_dsp/executor.h"

namespace kazeia::emulated_dsp {
namespace {

// The device spins a billion times; a test that waits longer than this for a peer waits in vain.
constexpr std::chrono::seconds kPatience{10};

htp_status wait(std::uint32_t* words, std::uint32_t sequence) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  // Sequence numbers wrap around, so their distance is compared.
  while (static_cast<std::int32_t>(std::atomic_ref(words[0]).load(std::memory_order_acquire) - sequence) < 0) {
    if (std::chrono::steady_clock::now() > deadline) return HTP_STATUS_INTERNAL_ERR;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const std::uint32_t status = std::atomic_ref(words[1]).load(std::memory_order_acquire);
  return status > HTP_STATUS_OK ? static_cast<htp_status>(status) : HTP_STATUS_OK;
}

}  // namespace

bool is_fence(std::uint32_t opcode) {
  return opcode == HTP_OP_FENCE || opcode == HTP_OP_CPY_FENCE;
}

htp_status execute_fence(const Op& op, htp_status so_far) {
  const Tensor* fence = op.src[op.opcode == HTP_OP_CPY_FENCE ? 1 : 0];
  if (fence == nullptr || !fence->fence || reinterpret_cast<std::uintptr_t>(fence->data) % 8 != 0) {
    return HTP_STATUS_INVAL_PARAMS;
  }
  auto* words = reinterpret_cast<std::uint32_t*>(fence->data);
  const auto sequence = static_cast<std::uint32_t>(op.params[0]);
  const bool signal = op.opcode == HTP_OP_CPY_FENCE || op.params[1] == 1;
  if (!signal) return wait(words, sequence);
  std::atomic_ref(words[1]).store(so_far, std::memory_order_release);
  std::atomic_ref(words[0]).store(sequence, std::memory_order_release);
  return HTP_STATUS_OK;
}

}  // namespace kazeia::emulated_dsp
