#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// `bytes` bytes of the device's memory that hold what `fill` wrote to host memory of that size, complete when it
/// returns. For the few constants and weights that a model computes at start. Errors: out_of_memory.
Result<kernels::Buffer> fill_on_device(kernels::Device& device, std::size_t bytes,
                                       const std::function<void(std::byte*)>& fill);

/// The same of bytes that are there already.
Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes);

}  // namespace pagoda::layers
