#include "emulated_dsp/memory.h"

#include <AEEStdErr.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulated_dsp/counters.h"

namespace kazeia::emulated_dsp {

Memory& memory() {
  static auto* const shared = new Memory();
  return *shared;
}

void* Memory::allocate(std::size_t size, std::size_t limit) {
  const std::lock_guard lock(mutex_);
  if (size == 0 || size > limit || alive_ > limit - size) return nullptr;
  const int fd = memfd_create("emulated-dsp", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* base = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0) {
    base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  by_fd_[fd] = Allocation{{fd, static_cast<std::uint8_t*>(base), size, next_serial_++}, {}};
  alive_ += size;
  Counters& count = counters();
  ++count.rpcmem_buffers;
  count.rpcmem_bytes = alive_;
  if (alive_ > count.rpcmem_bytes_peak) count.rpcmem_bytes_peak = alive_;
  return base;
}

void Memory::release(void* address) {
  const std::lock_guard lock(mutex_);
  for (auto entry = by_fd_.begin(); entry != by_fd_.end(); ++entry) {
    const Allocation& allocation = entry->second;
    if (allocation.base != address) continue;
    Counters& count = counters();
    if (!allocation.domains.empty()) {
      ++count.freed_while_mapped;
      count.mapped_buffers -= allocation.domains.size();
      count.mapped_bytes -= allocation.size * allocation.domains.size();
    }
    alive_ -= allocation.size;
    --count.rpcmem_buffers;
    count.rpcmem_bytes = alive_;
    munmap(allocation.base, allocation.size);
    close(allocation.fd);
    by_fd_.erase(entry);
    return;
  }
}

int Memory::fd_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [fd, allocation] : by_fd_) {
    if (allocation.base == address) return fd;
  }
  return -1;
}

int Memory::map(int domain, int fd, const void* address, int offset, std::size_t length) {
  const std::lock_guard lock(mutex_);
  const auto entry = by_fd_.find(fd);
  if (entry == by_fd_.end() || offset != 0 || length == 0 || length > entry->second.size) return AEE_EBADPARM;
  if (address != nullptr && address != entry->second.base) return AEE_EBADPARM;
  if (!entry->second.domains.insert(domain).second) return AEE_EBADPARM;
  Counters& count = counters();
  ++count.mapped_buffers;
  count.mapped_bytes += entry->second.size;
  return AEE_SUCCESS;
}

int Memory::unmap(int domain, int fd, std::size_t length) {
  const std::lock_guard lock(mutex_);
  const auto entry = by_fd_.find(fd);
  if (entry == by_fd_.end() || length > entry->second.size || entry->second.domains.erase(domain) == 0) {
    return AEE_EBADPARM;
  }
  Counters& count = counters();
  ++count.munmap_calls;
  --count.mapped_buffers;
  count.mapped_bytes -= entry->second.size;
  return AEE_SUCCESS;
}

std::optional<Memory::Buffer> Memory::visible(int domain, int fd) const {
  const std::lock_guard lock(mutex_);
  const auto entry = by_fd_.find(fd);
  if (entry == by_fd_.end() || !entry->second.domains.contains(domain)) return std::nullopt;
  return entry->second;
}

}  // namespace kazeia::emulated_dsp
