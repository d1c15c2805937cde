#include "kernels/cuda/cuda_device.hpp"

#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/cuda_memory.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/cuda_stream.hpp"

namespace pagoda::kernels {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::string description) : index_(index), description_(std::move(description)) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string description() const override { return description_; }

  Result<Buffer> allocate(std::size_t bytes, MemoryKind kind) override {
    const Status current = cuda::check(cudaSetDevice(index_), "cudaSetDevice");
    if (!current) return fail(current.error());
    return cuda::allocate(bytes, kind);
  }

  Result<std::unique_ptr<Stream>> create_stream(const std::string& name) override {
    auto stream = cuda::CudaStream::create(index_, name);
    if (!stream) return fail(std::move(stream.error()));
    return std::unique_ptr<Stream>(std::move(*stream));
  }

  const Ops& ops() const override { return ops_; }

  std::size_t available_bytes(MemoryKind kind) const override {
    return cudaSetDevice(index_) == cudaSuccess ? cuda::available_bytes(kind) : 0;
  }

 private:
  int index_;
  std::string description_;
  cuda::CudaOps ops_;
};

tl::unexpected<Error> unusable(int index, const std::string& why) {
  return fail(ErrorCode::unsupported, "CUDA device " + std::to_string(index) + " cannot be used: " + why, "device");
}

}  // namespace

bool cuda_in_build() {
  return true;
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

Result<std::shared_ptr<Device>> create_cuda_device(int index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return unusable(index, cudaGetErrorString(counted));
  if (index < 0 || index >= count) return unusable(index, "this machine has " + std::to_string(count));
  cudaDeviceProp properties{};
  const cudaError_t read = cudaGetDeviceProperties(&properties, index);
  if (read != cudaSuccess) return unusable(index, cudaGetErrorString(read));
  constexpr int kOldestMajor = 8;
  const std::string name = properties.name;
  if (properties.major < kOldestMajor) {
    return unusable(index, name + " has compute capability " + std::to_string(properties.major) + "." +
                               std::to_string(properties.minor) + ", the oldest that works is 8.0");
  }
  const Status current = cuda::check(cudaSetDevice(index), "cudaSetDevice");
  if (!current) return unusable(index, current.error().message);
  const std::string description = "cuda " + std::to_string(index) + ": " + name + ", " +
                                  std::to_string(properties.totalGlobalMem >> 30) + " GiB, sm_" +
                                  std::to_string(properties.major) + std::to_string(properties.minor);
  return std::make_shared<CudaDevice>(index, description);
}

}  // namespace pagoda::kernels
