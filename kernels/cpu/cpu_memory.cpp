#include "kernels/cpu/cpu_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace pagoda::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::string in_mib(std::size_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

tl::unexpected<Error> does_not_fit(std::size_t bytes) {
  return fail(ErrorCode::out_of_memory, "cannot allocate " + in_mib(bytes) + " of memory (" +
                                            in_mib(available_cpu_memory()) +
                                            " available); lower the KV cache size, the swap space or the batch size");
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
  if (bytes > physical_memory() || bytes > available_cpu_memory()) return does_not_fit(bytes);
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

std::size_t available_cpu_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  while (info >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return physical_memory();
}

}  // namespace pagoda::kernels
