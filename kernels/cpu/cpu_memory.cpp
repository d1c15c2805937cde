#include "kernels/cpu/cpu_memory.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/memory_limits.hpp"
#include "kernels/host_memory.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::string in_mib(std::size_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

tl::unexpected<Error> does_not_fit(std::size_t bytes) {
  return fail(ErrorCode::out_of_memory, "cannot allocate " + beside_available_memory(bytes) +
                                            "; lower the KV cache size, the swap space or the batch size");
}

Result<Buffer> allocate_small(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return does_not_fit(bytes);
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, [](void* p, std::size_t) { std::free(p); });
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// A mapping that begins and ends at a huge page, so that all of it can lie on such.
Result<Buffer> allocate_large(std::size_t bytes) {
  if (bytes > available_cpu_memory()) return does_not_fit(bytes);
  const std::size_t whole = round_up(bytes, kHugePageBytes);
  const std::size_t mapped = whole + kHugePageBytes;
  void* map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return does_not_fit(bytes);
  auto* begin = static_cast<std::byte*>(map);
  const std::size_t before = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(map) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + whole, mapped - before - whole);
  std::byte* data = begin + before;
#if defined(MADV_HUGEPAGE)
  madvise(data, whole, MADV_HUGEPAGE);  // a wish: without huge pages the memory is only slower
#endif
  return Buffer(data, bytes, [](void* p, std::size_t size) { munmap(p, round_up(size, kHugePageBytes)); });
}

}  // namespace

Result<Buffer> allocate_cpu_memory(std::size_t bytes, const std::function<void(void* data, std::size_t bytes)>& place) {
  if (bytes == 0) return Buffer();
  if (bytes < kLargeBytes) return allocate_small(bytes);
  auto buffer = allocate_large(bytes);
  if (buffer && place) place(buffer->data(), bytes);
  return buffer;
}

Result<Buffer> allocate_host_memory(std::size_t bytes) {
  return allocate_cpu_memory(bytes);
}

Status touch_cpu_memory(void* data, std::size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  // Takes whole pages at once, and tells of a failure where a write would end the process.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return {};
  if (errno == ENOMEM || errno == EFAULT) {
    return fail(ErrorCode::out_of_memory,
                "cannot take " + beside_available_memory(bytes) + ": " + std::strerror(errno));
  }
#endif
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* begin = static_cast<std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += page) {
    auto* byte = static_cast<volatile std::byte*>(begin + at);
    *byte = *byte;
  }
  return {};
}

std::size_t available_cpu_memory() {
  return available_memory().bytes;
}

std::string memory_that_is_available() {
  const AvailableMemory available = available_memory();
  return in_mib(available.bytes) + " are available (" + available.limit + ")";
}

std::string beside_available_memory(std::size_t bytes) {
  return in_mib(bytes) + " of memory: " + memory_that_is_available();
}

}  // namespace pagoda::kernels
