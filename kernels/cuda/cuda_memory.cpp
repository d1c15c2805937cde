#include "kernels/cuda/cuda_memory.hpp"

#include <cstring>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cuda/cuda_check.hpp"

namespace pagoda::kernels::cuda {
namespace {

std::string in_mib(std::size_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

tl::unexpected<Error> refused(std::size_t bytes, MemoryKind kind, cudaError_t result) {
  const bool on_device = kind == MemoryKind::device;
  if (result != cudaErrorMemoryAllocation)
    return fail(check(result, on_device ? "cudaMalloc" : "cudaHostAlloc").error());
  cudaGetLastError();  // clears the error: running out of memory is not permanent
  return fail(ErrorCode::out_of_memory,
              "cannot allocate " + std::to_string(bytes) + " bytes (" + in_mib(bytes) + ") of " +
                  (on_device ? "device memory" : "pinned host memory") + ", " + in_mib(available_bytes(kind)) +
                  " available; lower " +
                  (on_device ? "--gpu-memory-utilization or --max-num-batched-tokens" : "--swap-space"));
}

}  // namespace

Result<Buffer> allocate(std::size_t bytes, MemoryKind kind) {
  if (bytes == 0) return Buffer();
  void* data = nullptr;
  if (kind == MemoryKind::host) {
    const cudaError_t allocated = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (allocated != cudaSuccess) return refused(bytes, kind, allocated);
    std::memset(data, 0, bytes);
    return Buffer(data, bytes, [](void* owned, std::size_t) { cudaFreeHost(owned); });
  }
  const cudaError_t allocated = cudaMalloc(&data, bytes);
  if (allocated != cudaSuccess) return refused(bytes, kind, allocated);
  Buffer buffer(data, bytes, [](void* owned, std::size_t) { cudaFree(owned); });
  // Other streams do not wait for the stream of cudaMemset, so the host waits.
  Status zeroed = check(cudaMemset(data, 0, bytes), "cudaMemset");
  if (zeroed) zeroed = check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  if (!zeroed) return fail(zeroed.error());
  return buffer;
}

std::size_t available_bytes(MemoryKind kind) {
  if (kind == MemoryKind::host) return available_cpu_memory();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}

}  // namespace pagoda::kernels::cuda
