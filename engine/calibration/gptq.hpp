#pragma once

/// Quantisation that makes up for its own errors: GPTQ (Frantar et al. 2022) in the form of QuIP's LDLQ (Chee et al.
/// 2023), which rounds the same.
///
/// With H the sum of x^T x over calibration rows (input_products.hpp), the squared error of a layer's outputs is
/// tr(E H E^T), E = W - W'. Columns are rounded one after the other, and what the errors so far do to the outputs is
/// taken from the columns still to come, as far as these can undo it:
///
///     H = (A + I) D (A + I)^T,   A strictly upper triangular, D diagonal
///     W'[:, k] = round(W[:, k] + sum over j < k of E[:, j] A[j, k])
///     tr(E H E^T) = sum over k of D[k] * |W'[:, k] - what was rounded|^2

#include <cstdint>
#include <vector>

#include "engine/calibration/gptq_grid.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// How errors go on to later columns: A and D of the products of one input.
class ErrorFeedback {
 public:
  /// Factorises `products` [size, size], symmetric, in place, after adding to its diagonal a hundredth of the
  /// diagonal's mean, or more where rounding makes it indefinite. Inside Stream::submit, on a device that computes on
  /// the host. Errors: bad_file (products that are not finite), out_of_memory.
  static Result<ErrorFeedback> factorize(kernels::Device& device, kernels::Stream& stream, kernels::Buffer products,
                                         std::int64_t size);

  std::int64_t size() const { return size_; }
  /// Row j of A: columns j + 1 on count.
  const float* row(std::int64_t j) const { return a_.as<float>() + j * size_; }
  /// D.
  const std::vector<float>& importance() const { return d_; }

 private:
  ErrorFeedback() = default;
  Status factorize_damped(kernels::Device& device, kernels::Stream& stream);

  std::int64_t size_ = 0;
  kernels::Buffer a_;
  std::vector<float> d_;
};

/// Weights as integers, in a GptqFormat.
struct GptqMatrix {
  std::vector<std::uint8_t> q;      ///< [rows, columns], one integer a byte
  std::vector<float> scales;        ///< [rows, columns / group_size], as rounded
  std::vector<std::uint8_t> zeros;  ///< likewise; none in a format with minimums
  std::vector<float> mins;          ///< likewise, as rounded; none in a format without
};

/// Quantises `weights` [rows, feedback.size()], which are overwritten. Inside Stream::submit, on a device that computes
/// on the host. Errors: bad_file (a weight that is not finite, or whose scale its type does not hold), out_of_memory.
Result<GptqMatrix> quantize_gptq(kernels::Device& device, kernels::Stream& stream, float* weights, std::int64_t rows,
                                 const ErrorFeedback& feedback, const GptqFormat& format);

}  // namespace pagoda::calibration
