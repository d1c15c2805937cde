#pragma once

#include <span>

namespace pagoda {

/// log of the sum of exp(logits), in double precision.
double log_sum_exp(std::span<const float> logits);

/// The Kullback-Leibler divergence of the distribution of `logits` from that of `reference`, in nats; with their
/// log_sum_exp.
double divergence(std::span<const float> logits, double norm, std::span<const float> reference, double reference_norm);

}  // namespace pagoda
