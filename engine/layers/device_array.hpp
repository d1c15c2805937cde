#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// Returns `bytes` bytes of the device's memory with the contents that `fill` writes, which receives as many zeroed
/// bytes of host memory. The memory is complete on return. Errors: out_of_memory.
Result<kernels::Buffer> fill_on_device(kernels::Device& device, std::size_t bytes,
                                       const std::function<void(std::byte* memory)>& fill);

/// Returns a copy of `bytes` bytes of the device's memory that the host can read. Errors: out_of_memory.
Result<kernels::Buffer> copy_to_host(kernels::Device& device, const void* from, std::size_t bytes);

/// Returns a copy of `bytes` in the device's memory. The copy is complete on return. For the few constants that a model
/// computes at start. Errors: out_of_memory.
Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes);

}  // namespace pagoda::layers
