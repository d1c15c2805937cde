#pragma once

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Enqueues LoraParams, which have passed check_shapes: for each kLoraItems items one kernel that multiplies rows by A,
/// and one that multiplies the results by B. A token id outside of the vocabulary gives NaN. Errors: out_of_memory
/// (scratch).
Status cuda_lora(CudaStream& stream, const LoraParams& p);

/// Items of one launch: they are parameters of the kernel, which are limited to 4 KiB.
constexpr int kLoraItems = 24;

}  // namespace pagoda::kernels::cuda
