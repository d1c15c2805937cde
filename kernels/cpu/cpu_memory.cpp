#include "kernels/cpu/cpu_memory.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/memory_limits.hpp"
#include "kernels/host_memory.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr std::size_t kHugePageBytes = kFileAlignment;

std::string in_mib(std::size_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

tl::unexpected<Error> does_not_fit(std::size_t bytes) {
  return fail(ErrorCode::out_of_memory, "cannot allocate " + describe_allocation(bytes) +
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

/// Maps `whole` bytes, aligned to a huge page, so that huge pages can back the whole range. `whole` is a multiple of
/// the size of a huge page. Returns null if the system refuses the mapping.
std::byte* map_huge_pages(std::size_t whole) {
  const std::size_t mapped = whole + kHugePageBytes;
  void* map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(map);
  const std::size_t before = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(map) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + whole, mapped - before - whole);
  return begin + before;
}

void advise_huge_pages(std::byte* data, std::size_t whole) {
#if defined(MADV_HUGEPAGE)
  madvise(data, whole, MADV_HUGEPAGE);  // a failure only makes the memory slower
#else
  static_cast<void>(data);
  static_cast<void>(whole);
#endif
}

Buffer large_buffer(std::byte* data, std::size_t bytes) {
  return Buffer(data, bytes, [](void* p, std::size_t size) { munmap(p, round_up(size, kHugePageBytes)); });
}

Result<Buffer> allocate_large(std::size_t bytes) {
  if (bytes > available_cpu_memory()) return does_not_fit(bytes);
  const std::size_t whole = round_up(bytes, kHugePageBytes);
  std::byte* data = map_huge_pages(whole);
  if (data == nullptr) return does_not_fit(bytes);
  advise_huge_pages(data, whole);
  return large_buffer(data, bytes);
}

/// Returns whether the system is configured to give processes no huge pages.
bool huge_pages_are_off() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  return modes.find("[never]") != std::string::npos;
}

/// Converts memory of files to huge pages. The system uses huge pages for such memory only after this request. Pages
/// that cannot be converted stay as they are.
void make_huge_pages(void* data, std::size_t bytes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older C libraries do not define
  static const bool off = huge_pages_are_off();
  if (!off) madvise(data, bytes, kCollapse);
}

}  // namespace

Result<Buffer> allocate_cpu_memory(std::size_t bytes, const std::function<void(void* data, std::size_t bytes)>& place) {
  if (bytes == 0) return Buffer();
  if (bytes < kLargeBytes) return allocate_small(bytes);
  auto buffer = allocate_large(bytes);
  if (buffer && place) place(buffer->data(), bytes);
  return buffer;
}

Result<Buffer> map_cpu_memory(int file, std::size_t offset, std::size_t bytes,
                              const std::function<void(void* data, std::size_t bytes)>& place) {
  if (bytes == 0) return Buffer();
  const std::size_t whole = round_up(bytes, kHugePageBytes);
  std::byte* reserved = map_huge_pages(whole);
  void* data = reserved == nullptr ? MAP_FAILED
                                   : mmap(reserved, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                                          static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    const int error = errno;
    if (reserved != nullptr) munmap(reserved, whole);
    return fail(ErrorCode::io_failed, "cannot map " + in_mib(bytes) + " of a file: " + std::strerror(error));
  }
  advise_huge_pages(reserved, whole);
  if (place) place(data, bytes);
  return large_buffer(reserved, bytes);
}

Result<Buffer> allocate_host_memory(std::size_t bytes) {
  return allocate_cpu_memory(bytes);
}

Status touch_cpu_memory(void* data, std::size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  // Provides the pages in one call and returns an error where a write would end the process.
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) {
    make_huge_pages(data, bytes);
    return {};
  }
  if (errno == ENOMEM || errno == EFAULT) {
    return fail(ErrorCode::out_of_memory, "cannot take " + describe_allocation(bytes) + ": " + std::strerror(errno));
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

std::string describe_available_memory() {
  const AvailableMemory available = available_memory();
  return in_mib(available.bytes) + " are available (" + available.limit + ")";
}

std::string describe_allocation(std::size_t bytes) {
  return in_mib(bytes) + " of memory: " + describe_available_memory();
}

}  // namespace pagoda::kernels
