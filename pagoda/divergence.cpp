#include "pagoda/divergence.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pagoda {

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

double divergence(std::span<const float> logits, double norm, std::span<const float> reference, double reference_norm) {
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - reference_norm;
    sum += std::exp(log_p) * (log_p - (logits[i] - norm));
  }
  return sum < 0.0 ? 0.0 : sum;  // NaN stays NaN
}

}  // namespace pagoda
