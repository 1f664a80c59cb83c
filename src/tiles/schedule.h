// How the row tiles of one product are handed to threads: pieces that start large and end small, taken in order from
// a shared counter. Large pieces keep one thread on one long run of memory (its prefetches are not wasted on a
// neighbour's piece); small last pieces let the threads finish together even if one of them is slower, as the two
// kinds of cores of the tablet are.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kazeia::tiles {

// Walks the pieces of [0, total) in order. Every thread walks the same list and works on the pieces whose number it
// drew, so numbers must be asked for in increasing order.
class Pieces {
 public:
  Pieces(std::int64_t total, int threads, std::int64_t smallest)
      : total_(total), threads_(threads), smallest_(std::max<std::int64_t>(1, smallest)) {}

  struct Range {
    std::int64_t first;
    std::int64_t last;  // first == last: nothing left
  };
  Range piece(std::int64_t number) {
    while (number_ < number && last_ < total_) advance();
    return number_ == number ? Range{first_, last_} : Range{total_, total_};
  }

 private:
  void advance() {
    ++number_;
    first_ = last_;
    // A third of every thread's share of what is left.
    const std::int64_t size = std::max(smallest_, (total_ - first_) / (3 * threads_));
    last_ = std::min(total_, first_ + size);
  }

  std::int64_t total_;
  int threads_;
  std::int64_t smallest_;
  std::int64_t number_ = -1;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
};

}  // namespace kazeia::tiles
