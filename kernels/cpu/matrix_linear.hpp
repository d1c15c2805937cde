#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Return whether the matrix unit of an instruction set computes a product. It multiplies bfloat16 weights, and
/// quantised weights by many rows of x.
bool uses_matrix_unit(const CpuKernels& kernels, const LinearParams& params);
bool uses_matrix_unit(const CpuKernels& kernels, const QuantizedLinearParams& params);

/// Compute products for which uses_matrix_unit holds; `params` has passed `check`, and num_tokens is not 0. Errors:
/// out_of_memory (scratch).
Status cpu_matrix_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const LinearParams& params);
Status cpu_matrix_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const QuantizedLinearParams& params);

}  // namespace pagoda::kernels
