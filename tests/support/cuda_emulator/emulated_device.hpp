#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.hpp"

namespace cuda_emulator {

/// Creates the CUDA device of the emulator: the backend's own sources, run on the CPU. Its device memory is ordinary
/// memory, filled with 0xFF before the backend receives it.
pagoda::Result<std::shared_ptr<pagoda::kernels::Device>> create_emulated_cuda_device();

/// Makes every later call fail with a permanent error, as a fault in a kernel does, until reset_emulated_device().
void break_emulated_device();
void reset_emulated_device();

/// Sets the seed of the order of blocks and threads from now on; 0 = ascending.
void set_emulated_order(std::uint64_t seed);

}  // namespace cuda_emulator
