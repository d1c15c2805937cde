#include "tests/support/split_memory.hpp"

#include <stdexcept>

#include <sys/mman.h>

namespace pagoda::test {
namespace {

constexpr std::size_t kPage = 4096;

std::byte* reserve(std::size_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::runtime_error("cannot reserve addresses for a device's memory");
  return static_cast<std::byte*>(address);
}

std::size_t in_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SplitMemory::SplitMemory(std::size_t device_bytes)
    : closed_(reserve(kAddresses, PROT_NONE)),
      open_(reserve(kAddresses, PROT_READ | PROT_WRITE)),
      free_bytes_(device_bytes) {}

SplitMemory::~SplitMemory() {
  munmap(closed_, kAddresses);
  munmap(open_, kAddresses);
}

Result<kernels::Buffer> SplitMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return kernels::Buffer();
  const std::size_t taken = in_pages(bytes);
  const std::lock_guard lock(mutex_);
  if (taken > free_bytes_ || taken > kAddresses - next_) {
    return fail(ErrorCode::out_of_memory, "cannot allocate " + std::to_string(bytes) + " bytes of device memory (" +
                                              std::to_string(free_bytes_) + " free)");
  }
  std::byte* const address = closed_ + next_;
  next_ += taken;
  free_bytes_ -= taken;
  return kernels::Buffer(address, bytes, [this, taken](void* p, std::size_t) {
    madvise(bytes_at(p), taken, MADV_DONTNEED);
    const std::lock_guard relock(mutex_);
    free_bytes_ += taken;
  });
}

std::size_t SplitMemory::available() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

}  // namespace pagoda::test
