#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Returns the number of steps of a product over k columns (a multiple of kLinearPadding) of weights. A step is one
/// quad of x, 16 bytes.
inline std::int64_t steps_of(const CpuKernels& kernels, DType dtype, std::int64_t k) {
  return k / (dtype == DType::bf16 ? kernels.bf16_quad : 4);
}

/// Computes LinearParams on the CPU; `params` has passed `check`. Errors: out_of_memory (scratch).
Status cpu_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch, const LinearParams& params);

}  // namespace pagoda::kernels
