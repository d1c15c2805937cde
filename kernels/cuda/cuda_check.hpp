#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Turns the result of a CUDA call into a Status whose message names the call. Errors: out_of_memory if the allocation
/// failed, otherwise internal.
inline Status check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return {};
  const ErrorCode code = result == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::internal;
  return fail(code, std::string(call) + ": " + cudaGetErrorString(result));
}

}  // namespace pagoda::kernels::cuda
