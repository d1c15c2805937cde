#include <cmath>
#include <numbers>

#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {
namespace {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1.0 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x * std::numbers::sqrt2 / 2);
    case Activation::gelu_tanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::relu:
      return x > 0.0 ? x : 0.0;
  }
  return 0.0;
}

}  // namespace

// x [num_tokens, width], or [num_tokens, 2 * width] when gated -> out [num_tokens, width]
void activation(const ActivationParams& p) {
  const std::int64_t x_stride = p.gated ? 2 * p.width : p.width;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const float* x = p.x + t * x_stride;
    for (std::int64_t i = 0; i < p.width; ++i) {
      const double y = activate(p.activation, x[i]);
      p.out[t * p.width + i] = static_cast<float>(p.gated ? y * x[p.width + i] : y);
    }
  }
}

}  // namespace pagoda::kernels::reference
