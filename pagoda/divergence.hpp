#pragma once

#include <span>

namespace pagoda {

/// Returns the log of the sum of exp(logits), in double precision.
double log_sum_exp(std::span<const float> logits);

/// Returns the Kullback-Leibler divergence of the distribution of `logits` from that of `reference`, in nats. `norm`
/// and `reference_norm`: the log_sum_exp of each.
double divergence(std::span<const float> logits, double norm, std::span<const float> reference, double reference_norm);

}  // namespace pagoda
