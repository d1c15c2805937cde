#include <cmath>

#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// x, residual [num_tokens, hidden], weight [hidden] -> out [num_tokens, hidden]
void rms_norm(const RmsNormParams& p) {
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const float* x = p.x + t * p.hidden;
    float* out = p.out + t * p.hidden;
    if (p.residual != nullptr) {
      float* residual = p.residual + t * p.hidden;
      for (std::int64_t i = 0; i < p.hidden; ++i) residual[i] += x[i];
      x = residual;
    }
    double sum_of_squares = 0;
    for (std::int64_t i = 0; i < p.hidden; ++i) sum_of_squares += double{x[i]} * x[i];
    const double scale = 1.0 / std::sqrt(sum_of_squares / static_cast<double>(p.hidden) + double{p.eps});
    for (std::int64_t i = 0; i < p.hidden; ++i) {
      out[i] = static_cast<float>(x[i] * scale * (p.weight_offset + load(p.weight, p.weight_dtype, i)));
    }
  }
}

}  // namespace pagoda::kernels::reference
