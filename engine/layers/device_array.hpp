#pragma once

#include <cstddef>
#include <span>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// Returns a copy of `bytes` in the device's memory. The copy is complete on return. For the few constants that a model
/// computes at start. Errors: out_of_memory.
Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes);

}  // namespace pagoda::layers
