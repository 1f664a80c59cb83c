// Memory that the host and the emulated DSP share: memfd files, so that an allocation has a file descriptor as it has
// on the device. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>

namespace kazeia::emulated_dsp {

class Memory {
 public:
  struct Buffer {
    int fd;
    std::uint8_t* base;
    std::size_t size;
    // Tells an allocation from a later one that got the same file descriptor.
    std::uint64_t serial;
  };

  // Zeroed memory of `size` bytes, or null: no memory, size 0, or more than `limit` bytes alive.
  void* allocate(std::size_t size, std::size_t limit);
  // Ignores pointers that allocate() did not return, as the driver does.
  void release(void* memory);
  // -1: not an allocation's first byte.
  int fd_of(const void* memory) const;

  // Makes [0, length) of `fd` visible to `domain`. An AEE code: AEE_EBADPARM for an unknown fd, an address or length
  // that are not the allocation's, or a second mapping.
  int map(int domain, int fd, const void* address, int offset, std::size_t length);
  // AEE_EBADPARM: `domain` has no such mapping.
  int unmap(int domain, int fd, std::size_t length);
  // The buffer behind `fd` if `domain` may read it.
  std::optional<Buffer> visible(int domain, int fd) const;

 private:
  struct Allocation : Buffer {
    std::set<int> domains;
  };

  mutable std::mutex mutex_;
  std::map<int, Allocation> by_fd_;
  std::uint64_t next_serial_ = 1;
  std::size_t alive_ = 0;
};

Memory& memory();

}  // namespace kazeia::emulated_dsp
