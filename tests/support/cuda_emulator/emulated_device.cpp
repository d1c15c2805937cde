#include "tests/support/cuda_emulator/emulated_device.hpp"

#include "kernels/cuda/cuda_device.hpp"
#include "tests/support/cuda_emulator/cuda_emulator.hpp"
#include "tests/support/cuda_emulator/streams.hpp"

namespace cuda_emulator {

__attribute__((visibility("default"))) pagoda::Result<std::shared_ptr<pagoda::kernels::Device>>
create_emulated_cuda_device() {
  return pagoda::kernels::create_cuda_device(0);
}

__attribute__((visibility("default"))) void break_emulated_device() {
  report_problem(cudaErrorIllegalAddress, "the device was told to break");
}

__attribute__((visibility("default"))) void reset_emulated_device() {
  reset();
}

__attribute__((visibility("default"))) void set_emulated_order(std::uint64_t seed) {
  Options changed = options();
  changed.seed = seed;
  set_options(changed);
}

}  // namespace cuda_emulator
