#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Computes the product of few rows of x (at least 1) and bfloat16 weights on a matrix unit; `params` has passed
/// `check`. Errors: out_of_memory (scratch).
Status cpu_matrix_stream(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const LinearParams& params);

}  // namespace pagoda::kernels
