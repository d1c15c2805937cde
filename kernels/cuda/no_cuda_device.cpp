#include "kernels/cuda/cuda_device.hpp"

namespace pagoda::kernels {

bool cuda_in_build() {
  return false;
}

int cuda_device_count() {
  return 0;
}

Result<std::shared_ptr<Device>> create_cuda_device(int) {
  return fail(ErrorCode::unsupported,
              "this build has no CUDA backend; build it where nvcc is found (scripts/build cuda), or use --device cpu",
              "device");
}

}  // namespace pagoda::kernels
