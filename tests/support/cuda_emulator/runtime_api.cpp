#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cuda_runtime.h"
#include "cuda_runtime_api.h"
#include "tests/support/cuda_emulator/cuda_emulator.hpp"
#include "tests/support/cuda_emulator/device_memory.hpp"
#include "tests/support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

constexpr std::size_t kSharedBytes = std::size_t{48} << 10;
constexpr std::size_t kMaxSharedBytes = std::size_t{227} << 10;
constexpr unsigned int kMaxThreads = 1024;
constexpr int kNumMultiprocessors = 4;

struct Device {
  std::mutex mutex;
  Options options;
  std::string problem;
  cudaError_t sticky = cudaSuccess;
  std::map<const void*, std::size_t> shared_limits;
  std::atomic<std::size_t> num_kernels{0};
};

Device& device() {
  static Device device;
  return device;
}

thread_local cudaError_t last_error = cudaSuccess;

/// Converts the result of every call: a sticky error has priority, and the error is kept for cudaGetLastError.
cudaError_t result(cudaError_t error) {
  if (const cudaError_t sticky = sticky_error(); sticky != cudaSuccess) error = sticky;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

/// Ends the capture of the calling thread for a call that a capturing thread must not make. Returns whether there was a
/// capture.
bool breaks_capture() {
  EmulatedStream* captured = captured_by_this_thread();
  if (captured == nullptr) return false;
  captured->break_capture();
  return true;
}

void check_guards() {
  if (!all_guards_are_whole()) report_problem(cudaErrorIllegalAddress, "memory was written outside its allocation");
}

bool may_copy(const void* data, std::size_t bytes, bool pageable_is_allowed) {
  return memory_type(data, bytes) != cudaMemoryTypeUnregistered || pageable_is_allowed;
}

}  // namespace

void set_options(const Options& options) {
  const std::lock_guard lock(device().mutex);
  device().options = options;
}

Options options() {
  const std::lock_guard lock(device().mutex);
  return device().options;
}

std::string problem() {
  const std::lock_guard lock(device().mutex);
  return device().problem;
}

void report_problem(cudaError_t error, const std::string& text) {
  const std::lock_guard lock(device().mutex);
  if (device().sticky != cudaSuccess) return;
  device().sticky = error;
  device().problem = text;
  std::fprintf(stderr, "cuda emulator: %s\n", text.c_str());
}

cudaError_t sticky_error() {
  const std::lock_guard lock(device().mutex);
  return device().sticky;
}

void reset() {
  drain_all_streams();
  const std::lock_guard lock(device().mutex);
  device().sticky = cudaSuccess;
  device().problem.clear();
  last_error = cudaSuccess;
}

std::size_t num_kernels_run() {
  return device().num_kernels;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = options().num_devices;
  return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return result(cudaSuccess);
}
cudaError_t cudaSetDevice(int index) {
  return result(index >= 0 && index < options().num_devices ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index < 0 || index >= options().num_devices) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated");
  properties->totalGlobalMem = options().memory_bytes;
  properties->sharedMemPerBlock = kSharedBytes;
  properties->sharedMemPerBlockOptin = kMaxSharedBytes;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = kNumMultiprocessors;
  properties->maxThreadsPerBlock = kMaxThreads;
  properties->l2CacheSize = 1 << 20;
  return result(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(kSharedBytes);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kMaxSharedBytes);
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = kNumMultiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      break;
  }
  return result(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all_streams();
  check_guards();
  return result(cudaSuccess);
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = options().memory_bytes;
  *free_bytes = *total_bytes - std::min(*total_bytes, allocated_device_bytes());
  return result(cudaSuccess);
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = sticky_error();
  return sticky != cudaSuccess ? sticky : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
#define PAGODA_NAME_OF(value) \
  case value:                 \
    return #value
  switch (error) {
    PAGODA_NAME_OF(cudaSuccess);
    PAGODA_NAME_OF(cudaErrorInvalidValue);
    PAGODA_NAME_OF(cudaErrorMemoryAllocation);
    PAGODA_NAME_OF(cudaErrorInvalidConfiguration);
    PAGODA_NAME_OF(cudaErrorNoDevice);
    PAGODA_NAME_OF(cudaErrorInvalidDevice);
    PAGODA_NAME_OF(cudaErrorInvalidResourceHandle);
    PAGODA_NAME_OF(cudaErrorNotReady);
    PAGODA_NAME_OF(cudaErrorIllegalAddress);
    PAGODA_NAME_OF(cudaErrorLaunchOutOfResources);
    PAGODA_NAME_OF(cudaErrorLaunchFailure);
    PAGODA_NAME_OF(cudaErrorNotSupported);
    PAGODA_NAME_OF(cudaErrorStreamCaptureUnsupported);
    PAGODA_NAME_OF(cudaErrorStreamCaptureInvalidated);
    PAGODA_NAME_OF(cudaErrorIllegalState);
    PAGODA_NAME_OF(cudaErrorUnknown);
  }
#undef PAGODA_NAME_OF
  return "?";
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  return result(allocate_device_memory(data, bytes));
}
cudaError_t cudaFree(void* data) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all_streams();
  return result(free_memory(data, cudaMemoryTypeDevice));
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned int) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  return result(allocate_pinned_memory(data, bytes));
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* data) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all_streams();
  return result(free_memory(data, cudaMemoryTypeHost));
}
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned int) {
  return result(register_host_memory(data, bytes));
}
cudaError_t cudaHostUnregister(void* data) {
  drain_all_streams();
  return result(unregister_host_memory(data));
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const cudaMemoryType type = memory_type(data, 1);
  auto* pointer = const_cast<void*>(data);
  *attributes = {type, 0, type == cudaMemoryTypeUnregistered ? nullptr : pointer,
                 type == cudaMemoryTypeHost ? pointer : nullptr};
  return result(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (bytes > 0) stream_of(nullptr).add([=](BlockRunner&) { std::memcpy(to, from, bytes); });
  stream_of(nullptr).drain();
  return result(cudaSuccess);
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  if (breaks_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (bytes > 0 && !may_copy(data, bytes, false)) return result(cudaErrorInvalidValue);
  stream_of(nullptr).add([=](BlockRunner&) { std::memset(data, value, bytes); });
  stream_of(nullptr).drain();
  return result(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (bytes == 0) return result(cudaSuccess);
  if (!may_copy(to, bytes, false) || !may_copy(from, bytes, false)) return result(cudaErrorInvalidValue);
  stream_of(stream).add([=](BlockRunner&) { std::memmove(to, from, bytes); });
  return result(cudaSuccess);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width == 0 || height == 0) return result(cudaSuccess);
  if (width > to_pitch || width > from_pitch || !may_copy(to, to_pitch * (height - 1) + width, false) ||
      !may_copy(from, from_pitch * (height - 1) + width, false)) {
    return result(cudaErrorInvalidValue);
  }
  stream_of(stream).add([=](BlockRunner&) {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  width);
    }
  });
  return result(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return result(cudaSuccess);
  if (!may_copy(data, bytes, false)) return result(cudaErrorInvalidValue);
  stream_of(stream).add([=](BlockRunner&) { std::memset(data, value, bytes); });
  return result(cudaSuccess);
}
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* attribute_indices,
                                 std::size_t num_attributes, cudaStream_t stream) {
  if (stream == nullptr || stream->capturing()) return result(cudaErrorNotSupported);
  if (count == 0 || num_attributes == 0 || num_attributes > count || attribute_indices[0] != 0) {
    return result(cudaErrorInvalidValue);
  }
  if (attributes[0].srcAccessOrder == cudaMemcpySrcAccessOrderInvalid) return result(cudaErrorInvalidValue);
  for (std::size_t i = 0; i < count; ++i) {
    if (sizes[i] == 0 || !may_copy(to[i], sizes[i], false) || !may_copy(from[i], sizes[i], false)) {
      return result(cudaErrorInvalidValue);
    }
  }
  // The copies of a batch have no order, so the last one runs first.
  std::vector<std::function<void()>> copies;
  for (std::size_t i = count; i-- > 0;) {
    copies.emplace_back([target = to[i], source = from[i], bytes = sizes[i]] { std::memcpy(target, source, bytes); });
  }
  stream->add([copies = std::move(copies)](BlockRunner&) {
    for (const auto& copy : copies) copy();
  });
  return result(cudaSuccess);
}

cudaError_t enqueue_kernel(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  const auto fits = [](dim3 shape, unsigned int x, unsigned int y, unsigned int z) {
    return shape.x >= 1 && shape.y >= 1 && shape.z >= 1 && shape.x <= x && shape.y <= y && shape.z <= z;
  };
  const dim3 block = config.blockDim;
  if (!fits(config.gridDim, 0x7FFFFFFF, 65535, 65535) || !fits(block, kMaxThreads, kMaxThreads, 64) ||
      block.x * block.y * block.z > kMaxThreads) {
    return result(cudaErrorInvalidConfiguration);
  }
  Options run_options;
  {
    const std::lock_guard lock(device().mutex);
    const auto limit = device().shared_limits.find(kernel);
    const std::size_t most = limit == device().shared_limits.end() ? kSharedBytes : limit->second;
    run_options = device().options;
    if (config.dynamicSmemBytes > most) {
      last_error = cudaErrorInvalidValue;
      return cudaErrorInvalidValue;
    }
  }
  const GridShape shape{config.gridDim, block, config.dynamicSmemBytes};
  // The result is taken before the kernel is queued: a launch returns earlier faults, never those of its own kernel.
  const cudaError_t launched = result(cudaSuccess);
  stream_of(config.stream).add([shape, seed = run_options.seed, thread = std::move(thread)](BlockRunner& runner) {
    if (sticky_error() != cudaSuccess) return;
    ++device().num_kernels;
    const std::string problem = runner.run(shape, seed, thread);
    if (!problem.empty()) report_problem(cudaErrorLaunchFailure, problem);
  });
  return launched;
}

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return result(cudaSuccess);
  if (value < 0 || static_cast<std::size_t>(value) > kMaxSharedBytes) return result(cudaErrorInvalidValue);
  {
    const std::lock_guard lock(device().mutex);
    device().shared_limits[kernel] = static_cast<std::size_t>(value);
  }
  return result(cudaSuccess);
}

cudaError_t count_active_blocks(int* blocks, const void*, int block_threads, std::size_t dynamic_bytes) {
  if (block_threads < 1 || dynamic_bytes > kMaxSharedBytes) return result(cudaErrorInvalidValue);
  *blocks = std::max(
      1, std::min(2048 / block_threads, dynamic_bytes == 0 ? 16 : static_cast<int>(kMaxSharedBytes / dynamic_bytes)));
  return result(cudaSuccess);
}

}  // namespace cuda_emulator
