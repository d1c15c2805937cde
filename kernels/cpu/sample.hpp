#pragma once

#include "kernels/result.hpp"
#include "kernels/sample.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// The sample op of the CPU device: checks `params`, then draws every row in parallel. Errors (internal): a null
/// pointer or a row out of range.
Status cpu_sample(ThreadPool& threads, const SampleParams& params);

}  // namespace pagoda::kernels
