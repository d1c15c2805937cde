#pragma once

#include "kernels/result.hpp"
#include "kernels/sample.hpp"
#include "kernels/thread_pool.hpp"

namespace pagoda::kernels {

/// Samples every row of `params` (kernels/sample.hpp) on the CPU, rows in parallel.
///
/// A row's output depends only on its own logits and parameters, not on the other rows, the threads or the instruction
/// set: every pass sums in one fixed order and uses one exponential (kernels/cpu/sample_passes.hpp).
///
/// Rules for ties and rounding:
///  - greedy takes the lowest id among equal maxima;
///  - top_k keeps exactly k tokens and top_p the shortest prefix of the descending order whose mass reaches top_p;
///    among equal logits the lower id comes first;
///  - the draw walks the kept tokens in the order of their ids (inverse CDF, one 53-bit uniform, kernels/random.hpp);
///  - a token whose logit lies 87 * temperature or more below the maximum (probability ratio 1e-38) has weight 0.
///
/// Errors: internal if a shape or parameter is out of range; the message names the row, and no row is sampled. Problems
/// with the logits or ids of one row are reported only in its output (SampleProblem).
///
/// Memory: each thread keeps scratch of at most one copy of the vocabulary's logits and the candidates of a row.
Status cpu_sample(ThreadPool& pool, const SampleParams& params);

}  // namespace pagoda::kernels
