#pragma once

#include <vector>

#include "kernels/result.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels {

/// Returns the distribution of the draw: the probability of every token of the vocabulary for one row after all steps
/// of kernels/sample.hpp, in float64 with a full sort. In greedy rows one token has probability 1. The row must be
/// valid and have a token left.
std::vector<double> reference_distribution(const SampleParams& params, const SampleRow& row);

/// Samples all rows in the simplest way: one row after another, with full sorts, in float64. The results equal those of
/// cpu_sample, except for draws whose uniform number is within rounding error of the border between two tokens. Rows
/// that cannot be sampled get the same problems. It does not check shapes and ids.
void reference_sample(const SampleParams& params);

}  // namespace pagoda::kernels
