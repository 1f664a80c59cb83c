// How fast this machine reads memory: the limit of one-token decode.
#pragma once

#include <cstdint>

namespace kazeia::bench {

// GB/s (1e9 bytes) of reading `bytes` of memory once with `threads` threads, the best of `passes` passes. The memory is on
// huge pages where the system has them, read in long runs with the widest loads the compiler emits. 0 if the memory
// cannot be had.
double plain_read_gbps(int threads, std::uint64_t bytes, int passes);

}  // namespace kazeia::bench
