#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/cpu/biases.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {

/// Rows of one weight matrix that are multiplied at once, at most kMatrixBand.
template <class Matrix>
struct Band {
  const Matrix* weight = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t out_column = 0;

  std::int64_t first_panel() const { return first_row / kMatrixPanel; }
  std::int64_t panels() const { return ceil_div(rows, kMatrixPanel); }
};

/// The bands, the biases and the output of a product.
template <class Params>
class BandedProduct {
 public:
  using Matrix = std::remove_cv_t<typename decltype(Params::weights)::element_type>;

  /// Divides the weights into bands of up to `band_rows` rows: kMatrixBand, or kMatrixPanel.
  BandedProduct(const Params& p, std::int64_t band_rows) : p_(p) {
    for (const Matrix& weight : p.weights) {
      bands_.reserve(bands_.size() + static_cast<std::size_t>(ceil_div(weight.rows, band_rows)));
      for (std::int64_t row = 0; row < weight.rows; row += band_rows) {
        bands_.push_back({&weight, row, std::min(band_rows, weight.rows - row), out_features_ + row});
      }
      out_features_ += weight.rows;
    }
  }

  std::int64_t num_bands() const { return std::ssize(bands_); }
  const Band<Matrix>& band(std::int64_t index) const { return bands_[static_cast<std::size_t>(index)]; }
  std::int64_t out_features() const { return out_features_; }

  /// Widens the biases into scratch of out_features floats, if there are biases.
  void set_biases(const CpuKernels& kernels, float* scratch) { biases_ = widened_biases(kernels, p_, scratch); }

  /// Writes `count` results of row m, from `column` of the output on.
  void write(std::int64_t m, std::int64_t column, std::int64_t count, const float* sums) const {
    float* const out = p_.out + m * p_.out_stride + column;
    const float* const bias = biases_ == nullptr ? nullptr : biases_ + column;
    for (std::int64_t n = 0; n < count; ++n) {
      const float result = bias == nullptr ? sums[n] : sums[n] + bias[n];
      out[n] = p_.accumulate ? out[n] + result : result;
    }
  }

 private:
  const Params& p_;
  std::vector<Band<Matrix>> bands_;
  std::int64_t out_features_ = 0;
  const float* biases_ = nullptr;
};

}  // namespace pagoda::kernels
