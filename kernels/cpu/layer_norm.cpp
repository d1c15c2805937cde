#include "kernels/cpu/layer_norm.hpp"

#include <array>
#include <cmath>
#include <cstddef>

namespace pagoda::kernels {
namespace {

/// Returns the sum of term(i) for i < count, in 16 interleaved partial sums: one fixed order that the compiler can
/// vectorise.
template <class Term>
float sum_of(std::int64_t count, const Term& term) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[static_cast<std::size_t>(lane)] += term(i + lane);
  }
  for (; i < count; ++i) sums[static_cast<std::size_t>(i % kLanes)] += term(i);
  float total = 0.0F;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

void cpu_layer_norm_row(const float* x, float* residual, const float* weight, const float* bias, float eps,
                        std::int64_t hidden, float* out) {
  if (residual != nullptr) {
    for (std::int64_t i = 0; i < hidden; ++i) residual[i] += x[i];
    x = residual;
  }
  const auto size = static_cast<float>(hidden);
  const float mean = sum_of(hidden, [=](std::int64_t i) { return x[i]; }) / size;
  const float variance = sum_of(hidden, [=](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / size;
  const float factor = 1.0F / std::sqrt(variance + eps);
  for (std::int64_t i = 0; i < hidden; ++i) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

}  // namespace pagoda::kernels
