#pragma once

#include <cstddef>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Zeroed memory of the current device (MemoryKind::device), or zeroed pinned host memory that every device can read
/// and write directly (MemoryKind::host). No bytes give an empty buffer. Errors: out_of_memory that says how much was
/// asked, how much there is, and what to lower.
Result<Buffer> allocate(std::size_t bytes, MemoryKind kind);

/// Of the current device, or of the machine.
std::size_t available_bytes(MemoryKind kind);

}  // namespace pagoda::kernels::cuda
