#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Computes QuantizeWeightsParams on the CPU; `params` has passed `check`. Errors: bad_file (a weight that is not
/// finite, or a scale or minimum outside the range of float16).
Status cpu_quantize_weights(const CpuKernels& kernels, ThreadPool& threads, const QuantizeWeightsParams& params);

}  // namespace pagoda::kernels
