#pragma once

#include <vector>

#include "kernels/result.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels {

/// The probability of every token of the vocabulary for one row after all steps of kernels/sample.hpp, in float64 with
/// a full sort: what the draw follows. Greedy rows have one token of probability 1. The row must be valid and have a
/// token left.
std::vector<double> reference_distribution(const SampleParams& params, const SampleRow& row);

/// The sampling op written for plainness: one row after another, full sorts, float64. Same results as cpu_sample, apart
/// from draws whose uniform lies within rounding of the border between two tokens. Same problems of rows that cannot be
/// sampled; it trusts shapes and ids.
void reference_sample(const SampleParams& params);

}  // namespace pagoda::kernels
