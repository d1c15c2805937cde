#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Zeroed memory, aligned to 64 bytes at least. Large pieces come straight from the operating system, on huge pages
/// where it grants them, and take physical memory only as they are written. Errors (out_of_memory): more than is
/// available. `place(data, bytes)` is called with a large piece before anything has touched it.
Result<Buffer> allocate_cpu_memory(std::size_t bytes,
                                   const std::function<void(void* data, std::size_t bytes)>& place = {});

/// Memory of a file from `offset` on, a multiple of kFileAlignment, shared with whoever maps it. Aligned to huge pages.
/// What is behind the file's end must not be touched. Errors: io_failed.
inline constexpr std::size_t kFileAlignment = std::size_t{2} << 20;
Result<Buffer> map_cpu_memory(int file, std::size_t offset, std::size_t bytes,
                              const std::function<void(void* data, std::size_t bytes)>& place = {});

/// Writes to every page of memory from allocate_cpu_memory or map_cpu_memory, so that the operating system gives it
/// now; what it holds stays. On huge pages where `data` and `bytes` are whole ones. Errors (out_of_memory): the system
/// has no more.
Status touch_cpu_memory(void* data, std::size_t bytes);

/// Memory that may still be taken without swapping: the bytes of available_memory (kernels/cpu/memory_limits.hpp).
std::size_t available_cpu_memory();

/// For messages: "3 MiB are available (...)", and the same after "5 MiB of memory: ".
std::string memory_that_is_available();
std::string beside_available_memory(std::size_t bytes);

}  // namespace pagoda::kernels
