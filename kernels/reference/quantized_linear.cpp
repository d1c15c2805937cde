#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.hpp"
#include "kernels/reference/quantized_element.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels::reference {
namespace {

/// Returns a row of x before quantisation, reordered by `order`. If `rotated`, the row is padded with zeros to whole
/// rotation blocks and rotated.
std::vector<float> row_of(const float* x, std::int64_t columns, const std::int32_t* order, bool rotated) {
  std::vector<float> row(x, x + columns);
  if (order != nullptr) std::transform(order, order + columns, row.begin(), [x](std::int32_t k) { return x[k]; });
  if (!rotated) return row;
  constexpr std::size_t kBlock = kRotationBlock;
  row.resize((row.size() + kBlock - 1) / kBlock * kBlock);
  for (std::size_t k = 0; k < row.size(); k += kBlock) rotate_block(row.data() + k, kRotatedXFactor);
  return row;
}

/// Returns the values of a row after quantisation.
std::vector<double> quantized(const std::vector<float>& x, const QuantizedFormat& format) {
  const auto columns = static_cast<std::int64_t>(x.size());
  std::vector<double> values(x.size());
  const auto at = [&](std::int64_t k) { return k < columns ? x[static_cast<std::size_t>(k)] : 0.0F; };
  for (std::int64_t first = 0; first < columns; first += format.group_size) {
    const std::int64_t end = std::min(columns, first + format.group_size);
    float highest = 0;
    for (std::int64_t k = first; k < end; k += 2) {
      highest = std::max({highest, std::abs(at(k)), std::abs(at(k + 1))});
      if (format.pairs_bounded()) highest = std::max(highest, std::abs(at(k) + at(k + 1)));
    }
    if (highest == 0) continue;
    const float inverse = 127.0F / highest;
    for (std::int64_t k = first; k < end; ++k) {
      values[static_cast<std::size_t>(k)] = std::nearbyint(at(k) * inverse) * double{highest / 127.0F};
    }
  }
  return values;
}

}  // namespace

// x [num_tokens, in], weights [out_i, in], biases [out_i] -> out [num_tokens, out_stride], the parts next to each other
void quantized_linear(const QuantizedLinearParams& p) {
  const QuantizedFormat& format = p.weights.front().format;
  std::vector<std::vector<double>> x;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    x.push_back(quantized(row_of(p.x + t * p.in, p.in, p.weights.front().order, format.rotated), format));
  }
  if (x.empty()) return;
  std::vector<double> row(x.front().size());
  float* column = p.out;
  for (std::size_t part = 0; part < p.weights.size(); ++part) {
    const QuantizedMatrix& w = p.weights[part];
    const void* bias = p.biases.empty() ? nullptr : p.biases[part];
    for (std::int64_t n = 0; n < w.rows; ++n, ++column) {
      for (std::size_t k = 0; k < row.size(); ++k) row[k] = load(w, n, static_cast<std::int64_t>(k));
      for (std::size_t t = 0; t < x.size(); ++t) {
        double sum = 0;
        for (std::size_t k = 0; k < row.size(); ++k) sum += x[t][k] * row[k];
        if (bias != nullptr) sum += load(bias, p.bias_dtype, n);
        float& out = column[static_cast<std::int64_t>(t) * p.out_stride];
        out = static_cast<float>(p.accumulate ? out + sum : sum);
      }
    }
  }
}

}  // namespace pagoda::kernels::reference
