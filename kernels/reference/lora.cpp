#include <vector>

#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {
namespace {

/// Returns scale * A x of row `row`: [rank].
std::vector<double> shrink(const LoraParams& p, const LoraItem& item, std::int64_t row) {
  std::vector<double> shrunk(static_cast<std::size_t>(item.rank));
  for (std::int64_t r = 0; r < item.rank; ++r) {
    double sum = 0;
    if (p.token_ids != nullptr) {
      sum = load(item.a, item.dtype, p.token_ids[row] * item.rank + r);
    } else {
      for (std::int64_t k = 0; k < p.in; ++k) {
        const float x = p.narrow_x ? load(p.narrow_x.data, p.narrow_x.dtype, row * p.in + k) : p.x[row * p.in + k];
        sum += double{x} * load(item.a, item.dtype, r * p.in + k);
      }
    }
    shrunk[static_cast<std::size_t>(r)] = item.scale * sum;
  }
  return shrunk;
}

}  // namespace

// x [num_tokens, in], items of A [rank, in] and B in panels -> out [num_tokens, out_stride]
void lora(const LoraParams& p) {
  for (const LoraItem& item : p.items) {
    for (std::int64_t t = 0; t < item.num_rows; ++t) {
      const std::int64_t row = item.first_row + t;
      const std::vector<double> shrunk = shrink(p, item, row);
      for (std::int64_t n = 0; n < item.out_features; ++n) {
        float& out = p.out[row * p.out_stride + item.first_column + n];
        double change = 0;
        for (std::int64_t r = 0; r < item.rank; ++r) {
          const std::int64_t at = (n / kLoraPanel * item.rank + r) * kLoraPanel + n % kLoraPanel;
          change += shrunk[static_cast<std::size_t>(r)] * load(item.b, item.dtype, at);
        }
        if (item.factors != nullptr) {
          const double base = item.base == nullptr ? out : item.base[t * item.base_stride + n];
          change = item.factors[n] * change + (double{item.factors[n]} - 1) * base;
        }
        if (item.bias != nullptr) change += item.bias[n];
        out = static_cast<float>(out + change);
      }
    }
  }
}

}  // namespace pagoda::kernels::reference
