#pragma once

#include <cstddef>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Allocates zeroed memory of the current device (MemoryKind::device), or zeroed pinned host memory that every device
/// can read and write directly (MemoryKind::host). 0 bytes give an empty buffer. Errors: out_of_memory, whose message
/// names the requested and the available size and the options to lower.
Result<Buffer> allocate(std::size_t bytes, MemoryKind kind);

/// Returns the available bytes of the current device (MemoryKind::device) or of the machine (MemoryKind::host).
std::size_t available_bytes(MemoryKind kind);

}  // namespace pagoda::kernels::cuda
