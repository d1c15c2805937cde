#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// x [num_tokens, in], weights [out_i, in], biases [out_i] -> out [num_tokens, out_stride], the parts next to each other
void linear(const LinearParams& p) {
  std::int64_t first_column = 0;
  for (std::size_t part = 0; part < p.weights.size(); ++part) {
    const WeightMatrix& w = p.weights[part];
    const void* bias = p.biases.empty() ? nullptr : p.biases[part];
    for (std::int64_t t = 0; t < p.num_tokens; ++t) {
      for (std::int64_t n = 0; n < w.rows; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.in; ++k) {
          const double scale =
              w.scales == nullptr ? 1.0F : w.scales[n / w.scale_rows * w.scales_of_row() + k / w.scale_columns];
          sum += double{p.x[t * p.in + k]} * scale * load(w.data, w.dtype, n * p.in + k);
        }
        if (bias != nullptr) sum += load(bias, p.bias_dtype, n);
        float& out = p.out[t * p.out_stride + first_column + n];
        out = static_cast<float>(p.accumulate ? out + sum : sum);
      }
    }
    first_column += w.rows;
  }
}

}  // namespace pagoda::kernels::reference
