#pragma once

#include <cstddef>

#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

/// Allocations of the emulated device and of pinned host memory.
cudaError_t allocate_device_memory(void** data, std::size_t bytes);
cudaError_t allocate_pinned_memory(void** data, std::size_t bytes);
/// Memory of another owner counts as pinned until forgotten.
cudaError_t register_host_memory(void* data, std::size_t bytes);
cudaError_t unregister_host_memory(void* data);
/// Errors: not the start of an allocation of this type; a guard zone was written (a problem of the device).
cudaError_t free_memory(void* data, cudaMemoryType type);

/// The type of the allocation that all of [data, data + bytes) lies in; unregistered when there is none.
cudaMemoryType memory_type(const void* data, std::size_t bytes);
std::size_t allocated_device_bytes();
/// False when something was written outside an allocation.
bool all_guards_are_whole();

}  // namespace cuda_emulator
