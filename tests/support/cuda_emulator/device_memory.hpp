#pragma once

#include <cstddef>

#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

/// Allocate memory of the emulated device, or pinned host memory.
cudaError_t allocate_device_memory(void** data, std::size_t bytes);
cudaError_t allocate_pinned_memory(void** data, std::size_t bytes);
/// Registers memory of another owner, which counts as pinned until it is unregistered.
cudaError_t register_host_memory(void* data, std::size_t bytes);
cudaError_t unregister_host_memory(void* data);
/// Frees an allocation. Errors: `data` is not the start of an allocation of this type; a guard zone was written (a
/// problem of the device).
cudaError_t free_memory(void* data, cudaMemoryType type);

/// Returns the type of the allocation that contains all of [data, data + bytes); unregistered if there is none.
cudaMemoryType memory_type(const void* data, std::size_t bytes);
std::size_t allocated_device_bytes();
/// Returns whether all guard zones are intact; false if memory outside an allocation was written.
bool all_guards_are_whole();

}  // namespace cuda_emulator
