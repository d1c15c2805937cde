#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.hpp"
#include "kernels/reference/quantized_element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {
namespace {

/// A row of x after it was quantised, as numbers again.
std::vector<double> quantized(const float* x, std::int64_t columns, std::int64_t group_size) {
  std::vector<double> values(static_cast<std::size_t>(columns));
  for (std::int64_t first = 0; first < columns; first += group_size) {
    const std::int64_t end = std::min(columns, first + group_size);
    float highest = 0;
    for (std::int64_t k = first; k < end; ++k) highest = std::max(highest, std::abs(x[k]));
    if (highest == 0) continue;
    const float inverse = 127.0F / highest;
    for (std::int64_t k = first; k < end; ++k) {
      values[static_cast<std::size_t>(k)] = std::nearbyint(x[k] * inverse) * double{highest / 127.0F};
    }
  }
  return values;
}

}  // namespace

// x [num_tokens, in], weights [out_i, in], biases [out_i] -> out [num_tokens, out_stride], the parts side by side
void quantized_linear(const QuantizedLinearParams& p) {
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const std::vector<double> x = quantized(p.x + t * p.in, p.in, p.weights.front().format.group_size);
    float* out = p.out + t * p.out_stride;
    for (std::size_t part = 0; part < p.weights.size(); ++part) {
      const QuantizedMatrix& w = p.weights[part];
      const void* bias = p.biases.empty() ? nullptr : p.biases[part];
      for (std::int64_t n = 0; n < w.rows; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.in; ++k) sum += x[static_cast<std::size_t>(k)] * load(w, n, k);
        if (bias != nullptr) sum += load(bias, p.bias_dtype, n);
        out[n] = static_cast<float>(p.accumulate ? out[n] + sum : sum);
      }
      out += w.rows;
    }
  }
}

}  // namespace pagoda::kernels::reference
