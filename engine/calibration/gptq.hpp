#pragma once

/// Quantisation that compensates its own errors: GPTQ (Frantar et al. 2022) in the form of QuIP's LDLQ (Chee et al.
/// 2023), which rounds to the same values.
///
/// With H the sum of x^T x over calibration rows (input_products.hpp), the squared error of a layer's outputs is tr(E H
/// E^T), E = W - W'. Columns are rounded one after another. The effect of the errors so far on the outputs is taken
/// from the columns still to come, as far as these can undo it:
///
///     H = (A + I) D (A + I)^T,   A strictly upper triangular, D diagonal
///     W'[:, k] = round(W[:, k] + sum over j < k of E[:, j] A[j, k])
///     tr(E H E^T) = sum over k of D[k] * |W'[:, k] - its value before rounding|^2

#include <cstdint>
#include <vector>

#include "engine/calibration/gptq_grid.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// The effect of errors on later columns: A and D of the products of one input.
class ErrorFeedback {
 public:
  /// Factorises `products` [size, size], which are symmetric. First adds a hundredth of the diagonal's mean to the
  /// diagonal, or more if rounding makes the matrix indefinite. Call inside Stream::submit, on a device that computes
  /// on the host. Errors: bad_file (products that are not finite), out_of_memory.
  static Result<ErrorFeedback> factorize(kernels::Device& device, kernels::Stream& stream, kernels::Buffer products,
                                         std::int64_t size);

  std::int64_t size() const { return size_; }
  /// Returns row j of A, of which only the columns from j + 1 on count.
  const float* row(std::int64_t j) const { return a_.as<float>() + j * size_; }
  /// Returns the diagonal of D.
  const std::vector<float>& importance() const { return d_; }

 private:
  ErrorFeedback() = default;
  Status factorize_damped(kernels::Device& device, kernels::Stream& stream);

  std::int64_t size_ = 0;
  kernels::Buffer a_;
  std::vector<float> d_;
};

/// Weights as integers in a GptqFormat.
struct GptqMatrix {
  std::vector<std::uint8_t> q;      ///< [rows, columns], one integer in each byte
  std::vector<float> scales;        ///< [rows, columns / group_size], rounded to the format's type
  std::vector<std::uint8_t> zeros;  ///< [rows, columns / group_size]; empty in a format with minimums
  /// [rows, columns / group_size], rounded to the format's type; empty in a format without minimums.
  std::vector<float> mins;
};

/// Quantises `weights` [rows, feedback.size()]. Call inside Stream::submit, on a device that computes on the host.
/// Errors: bad_file (a weight that is not finite, or a scale that its type does not hold), out_of_memory.
Result<GptqMatrix> quantize_gptq(kernels::Device& device, kernels::Stream& stream, float* weights, std::int64_t rows,
                                 const ErrorFeedback& feedback, const GptqFormat& format);

}  // namespace pagoda::calibration
