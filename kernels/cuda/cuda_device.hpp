#pragma once

#include <memory>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Returns whether this build has the CUDA backend.
bool cuda_in_build();

/// Returns the number of CUDA devices that this process may use; 0 without a driver and in a build without the CUDA
/// backend.
int cuda_device_count();

/// Creates CUDA device `index` with its memory, streams and ops. Errors (unsupported): the build has no CUDA backend,
/// no driver or no such device exists, or the device is older than compute capability 8.0.
Result<std::shared_ptr<Device>> create_cuda_device(int index = 0);

}  // namespace pagoda::kernels
