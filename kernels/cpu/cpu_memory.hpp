#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Allocates zeroed memory, aligned to at least 64 bytes. Large pieces come directly from the operating system, on huge
/// pages if it grants them, and use physical memory only when they are written. `place(data, bytes)` is called with a
/// large piece before the first access to it. Errors: out_of_memory if `bytes` is more than is available.
Result<Buffer> allocate_cpu_memory(std::size_t bytes,
                                   const std::function<void(void* data, std::size_t bytes)>& place = {});

/// Alignment of the offsets that map_cpu_memory accepts: the size of a huge page.
inline constexpr std::size_t kFileAlignment = std::size_t{2} << 20;
/// Maps `bytes` bytes of a file from `offset` on, a multiple of kFileAlignment. The memory is shared with every process
/// that maps the file, and aligned to huge pages. Do not access memory beyond the end of the file. Errors: io_failed.
Result<Buffer> map_cpu_memory(int file, std::size_t offset, std::size_t bytes,
                              const std::function<void(void* data, std::size_t bytes)>& place = {});

/// Makes the operating system provide every page of memory from allocate_cpu_memory or map_cpu_memory now. The contents
/// do not change. Uses huge pages if `data` and `bytes` are multiples of their size. Errors: out_of_memory if the
/// system has no more memory.
Status touch_cpu_memory(void* data, std::size_t bytes);

/// Returns the number of bytes that can still be allocated without swapping (available_memory in
/// kernels/cpu/memory_limits.hpp).
std::size_t available_cpu_memory();

/// Returns "3 MiB are available (...)", for messages.
std::string describe_available_memory();
/// Returns "5 MiB of memory: 3 MiB are available (...)" for a request of `bytes` bytes.
std::string describe_allocation(std::size_t bytes);

}  // namespace pagoda::kernels
