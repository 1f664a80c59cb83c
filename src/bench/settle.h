// Makes the start of two processes the same: the file in the page cache, memory at hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kazeia::bench {

// Takes and gives back `memory_bytes`, then reads all of `files`.
void settle(const std::vector<std::string>& files, std::uint64_t memory_bytes);

// What a model with so many bytes of weights may need at its peak, on whichever side of a comparison, so that no side
// pays for memory that the machine has lent out meanwhile; at most half of what is free.
std::uint64_t memory_to_settle(std::uint64_t weight_bytes, std::uint64_t available_bytes);

}  // namespace kazeia::bench
