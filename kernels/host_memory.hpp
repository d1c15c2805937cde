#pragma once

#include <cstddef>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Memory of the host, whatever the device: zeroed, aligned to 64 bytes at least, on huge pages where it is large and
/// the system grants them. Errors: out_of_memory.
Result<Buffer> allocate_host_memory(std::size_t bytes);

}  // namespace pagoda::kernels
