// How fast this machine reads memory: the limit of one-token decode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kazeia::bench {

// GB/s (1e9 bytes) of reading `bytes` of memory once with `threads` threads, the best of `passes` passes. The memory is
// on huge pages where the system has them, read in long runs. 0 if the memory cannot be had.
double plain_read_gbps(int threads, std::uint64_t bytes, int passes);

// One thread's reading: a sum that depends on every byte (of whole 128-byte pieces), so that no read can be left out.
std::uint64_t read_every_byte(const std::byte* begin, std::size_t bytes);

// Touches `bytes` of memory and gives it back. A virtual machine may have returned its free memory to the host, and
// getting it again costs seconds per gigabyte, on whoever happens to start next: do this before each side of a
// comparison of loads.
void touch_memory(std::uint64_t bytes);

}  // namespace kazeia::bench
