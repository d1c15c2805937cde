#include <cmath>

#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// x, residual [num_tokens, hidden], weight, bias [hidden] -> out [num_tokens, hidden]
void layer_norm(const LayerNormParams& p) {
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const float* x = p.x + t * p.hidden;
    float* out = p.out + t * p.hidden;
    if (p.residual != nullptr) {
      float* residual = p.residual + t * p.hidden;
      for (std::int64_t i = 0; i < p.hidden; ++i) residual[i] += x[i];
      x = residual;
    }
    double sum = 0;
    for (std::int64_t i = 0; i < p.hidden; ++i) sum += x[i];
    const double mean = sum / static_cast<double>(p.hidden);
    double squares = 0;
    for (std::int64_t i = 0; i < p.hidden; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(p.hidden) + double{p.eps});
    for (std::int64_t i = 0; i < p.hidden; ++i) {
      const double weight = p.weight == nullptr ? 1.0 : load(p.weight, p.weight_dtype, i);
      const double bias = p.bias == nullptr ? 0.0 : load(p.bias, p.bias_dtype, i);
      out[i] = static_cast<float>((x[i] - mean) * scale * weight + bias);
    }
  }
}

}  // namespace pagoda::kernels::reference
