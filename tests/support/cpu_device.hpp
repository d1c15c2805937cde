#pragma once

#include <memory>

#include "kernels/device.hpp"

namespace pagoda::test {

/// Creates a CPU device with the best instruction set of the machine.
inline std::shared_ptr<kernels::Device> cpu_device(int num_threads = 2) {
  return kernels::create_cpu_device({.num_threads = num_threads, .isa = ""}).value();
}

}  // namespace pagoda::test
