// Replaces the CUDA emulator, which is not cross-compiled: its tests are skipped with a message.

#include "tests/support/cuda_emulator/emulated_device.hpp"

namespace cuda_emulator {

pagoda::Result<std::shared_ptr<pagoda::kernels::Device>> create_emulated_cuda_device() {
  return pagoda::fail(pagoda::ErrorCode::unsupported, "this build has no CUDA emulator", "device");
}

void set_emulated_order(std::uint64_t) {}

}  // namespace cuda_emulator
