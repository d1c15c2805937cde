#pragma once

#include <cstddef>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Allocates host memory, independent of the device: zeroed, aligned to at least 64 bytes, on huge pages if it is large
/// and the system grants them. Errors: out_of_memory.
Result<Buffer> allocate_host_memory(std::size_t bytes);

}  // namespace pagoda::kernels
