#pragma once

#include <memory>

#include "kernels/device.hpp"

namespace pagoda::test {

/// With the best instruction set that the machine has.
inline std::shared_ptr<kernels::Device> cpu_device(int num_threads = 2) {
  return kernels::create_cpu_device({.num_threads = num_threads, .isa = ""}).value();
}

}  // namespace pagoda::test
