#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/scratch_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Computes LoraParams on the CPU; `params` has passed `check`. Errors: out_of_memory (scratch).
Status cpu_lora(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch, const LoraParams& params);

}  // namespace pagoda::kernels
