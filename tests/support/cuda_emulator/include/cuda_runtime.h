#pragma once

/// Device code as C++: keywords, built-in variables, intrinsics, and kernel launches.

#include <functional>
#include <tuple>
#include <utility>

#include "cuda_emulator/atomics.hpp"
#include "cuda_emulator/keywords.hpp"
#include "cuda_emulator/math.hpp"
#include "cuda_emulator/threads.hpp"
#include "cuda_emulator/types.hpp"
#include "cuda_emulator/warp.hpp"
#include "cuda_runtime_api.h"

namespace cuda_emulator {

/// Checks the shape and puts `thread` (what each thread of each block runs) into the stream's queue.
cudaError_t enqueue_kernel(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);
cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t count_active_blocks(int* blocks, const void* kernel, int block_threads, std::size_t dynamic_bytes);

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  return enqueue_kernel(*config, reinterpret_cast<const void*>(kernel),
                        [kernel, kept = std::tuple<P...>(std::forward<A>(args)...)] { std::apply(kernel, kept); });
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return set_function_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int block_threads,
                                                          std::size_t dynamic_bytes) {
  return count_active_blocks(blocks, reinterpret_cast<const void*>(kernel), block_threads, dynamic_bytes);
}

}  // namespace cuda_emulator
