#pragma once

#include <cstddef>
#include <functional>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Zeroed memory, aligned to 64 bytes at least. Large pieces come straight from the operating system, on huge pages
/// where it grants them, and take physical memory only as they are written. Errors (out_of_memory): more than is
/// available. `place(data, bytes)` is called with a large piece before anything has touched it.
Result<Buffer> allocate_cpu_memory(std::size_t bytes,
                                   const std::function<void(void* data, std::size_t bytes)>& place = {});

/// Physical memory that may still be taken without swapping.
std::size_t available_cpu_memory();

}  // namespace pagoda::kernels
