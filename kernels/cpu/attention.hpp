#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Computes PagedAttentionParams on the CPU; `params` has passed `check`. Errors: out_of_memory (scratch).
Status cpu_paged_attention(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                           const PagedAttentionParams& params);

}  // namespace pagoda::kernels
