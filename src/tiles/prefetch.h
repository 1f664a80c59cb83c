// Help for the hardware prefetcher of x86 cores. Software prefetches were measured and cost 6 to 17 % of a GEMV's speed
// on Zen 4 (docs/decisions/0005), so there are none.
#pragma once

#include <cstdint>

namespace kazeia::tiles {

// A weight of Q6_K lies in two places of its tile, and reading at both makes the hardware prefetcher lose track (22
// instead of 30 GB/s on Zen 4): one load per cache line, in order, keeps it going.
inline void touch_in_order(const std::uint8_t* tile, int bytes) {
  for (int at = 0; at < bytes; at += 64) {
    const std::uint8_t value = tile[at];
    asm volatile("" : : "r"(value));  // a load that the compiler neither drops nor moves
  }
}

}  // namespace kazeia::tiles
