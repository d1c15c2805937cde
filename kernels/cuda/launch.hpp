#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_check.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Dynamic shared memory that a thread block may use without raising the kernel's limit.
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;

/// Returns whether the current device can start a kernel while the kernel before it in the stream still runs (compute
/// capability 9.0 or higher).
bool starts_early();

enum class Start : std::uint8_t {
  in_order,  ///< after all earlier work of the stream has ended
  /// Near the end of the previous kernel, if the device supports it. The kernel calls wait_for_stream() before it reads
  /// or writes memory that other kernels write or read.
  early,
};

/// Starts a kernel on a stream. `args` are converted to the kernel's own parameter types. If the kernel needs more
/// dynamic shared memory than kPlainSharedBytes, its limit is raised first. An empty grid starts nothing. Errors
/// (internal) name `name` and the call: a shape that the device cannot run, or an error that an earlier kernel left.
template <class... P, class... A>
Status launch(Start start, const char* name, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
              cudaStream_t stream, A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (raised != cudaSuccess) {
      return check(raised,
                   (std::string(name) + ": " + std::to_string(shared_bytes) + " bytes of shared memory").c_str());
    }
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = start == Start::early && starts_early() ? 1 : 0;
  const cudaError_t launched = cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
  if (launched != cudaSuccess) return check(launched, (std::string(name) + ": cudaLaunchKernelEx").c_str());
  return {};
}

template <class... P, class... A>
Status launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
              cudaStream_t stream, A&&... args) {
  return launch(Start::in_order, name, kernel, grid, block, shared_bytes, stream, std::forward<A>(args)...);
}

}  // namespace pagoda::kernels::cuda
