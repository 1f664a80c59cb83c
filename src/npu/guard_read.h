// The messages of upstream's queue, and one read of it. Internal to guard_queue.cpp and guard_waiting.cpp.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ggml-hexagon/htp/htp-ops.h"
#include "npu/guard_core.h"

namespace kazeia::npu {

// The guard answers with messages of its own making: if upstream changes them, the guard must be read again.
static_assert(sizeof(htp_opbatch_req) == 24 && offsetof(htp_opbatch_req, seq) == 0);
static_assert(offsetof(htp_opbatch_req, n_bufs) == 8 && offsetof(htp_opbatch_req, n_ops) == 16);
static_assert(sizeof(htp_opbatch_rsp) == 88 && offsetof(htp_opbatch_rsp, seq) == 0);
static_assert(offsetof(htp_opbatch_rsp, status) == 24 && offsetof(htp_opbatch_rsp, n_ops) == 36);
static_assert(HTP_STATUS_OK == 1);

// One read of the driver waits this long at most, so that a read under way can be ended.
inline constexpr std::chrono::microseconds kSlice{50'000};
// What a driver gets beyond the timeout it was given before its call counts as one that hangs.
inline constexpr std::chrono::milliseconds kGrace{500};

struct GuardCore::Read {
  std::atomic<bool> stop{false};
  int error = AEE_EEXPIRED;
  std::uint32_t flags = 0;
  std::uint32_t n_buffers = 0;
  // More room than an answer needs, so that a wrong one can be told apart.
  std::array<dspqueue_buffer, 4> buffers{};
  std::uint32_t length = 0;
  alignas(8) std::array<std::uint8_t, 256> message{};
  DriverThread::Ticket call;

  htp_opbatch_rsp answer() const {
    htp_opbatch_rsp response;
    std::memcpy(&response, message.data(), sizeof(response));
    return response;
  }
};

}  // namespace kazeia::npu
