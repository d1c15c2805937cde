#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/layers/forward_batch.hpp"
#include "engine/layers/rows.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// Widths of the rows that a model works on, in floats per token.
struct ActivationShape {
  std::int64_t hidden_size = 0;
  /// Widths of the working rows of each kind of part (attention, MLP), as its work_widths() returns them. Parts never
  /// run at the same time, so they share memory.
  std::vector<std::vector<std::int64_t>> work_widths;
};

/// The working memory of a model run. It is allocated once at start, for the largest batch.
class Activations {
 public:
  Activations() = default;
  /// Allocates the memory. Errors: out_of_memory.
  static Result<Activations> create(kernels::Device& device, const ActivationShape& shape, const ModelLimits& limits);
  /// Returns the bytes that create allocates on a device with or without narrow rows.
  static std::int64_t bytes(const ActivationShape& shape, const ModelLimits& limits, bool narrow_rows);

  /// Returns an internal error when the batch is larger than the limits that create received.
  Status check_fits(const ForwardBatch& batch) const;
  /// Returns an internal error when `num_rows` is above max_logit_rows.
  Status check_logit_rows(std::int32_t num_rows) const;

  /// Returns rows [max_tokens, hidden_size] for the output of a norm that a linear layer reads as `dtype`. Rows of
  /// float32 lie in `hidden`, other rows in memory of their own.
  Rows normed(DType dtype) const { return dtype == DType::f32 ? Rows(hidden) : Rows(narrow_.as<float>(), dtype); }

  /// Returns the working rows of the part that is running: one matrix [max_tokens, width] for each of `widths`.
  /// `widths` must be one entry of ActivationShape::work_widths.
  template <std::size_t kCount>
  std::array<float*, kCount> work(const std::array<std::int64_t, kCount>& widths) const {
    std::array<float*, kCount> areas{};
    float* next = work_;
    for (std::size_t i = 0; i < kCount; ++i) {
      areas[i] = next;
      next += area(limits_.max_tokens, widths[i]);
    }
    return areas;
  }

  float* hidden = nullptr;      ///< [max_tokens, hidden_size]: input and output of each layer's parts
  float* residual = nullptr;    ///< [max_tokens, hidden_size]: the residual stream
  float* logit_rows = nullptr;  ///< [max_logit_rows, hidden_size]

 private:
  struct Layout;
  static Layout lay_out(const ActivationShape& shape, const ModelLimits& limits);
  /// Returns the floats that a matrix takes: a multiple of 64 (256 bytes), which suits matrix products on a GPU.
  static std::int64_t area(std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t kAlignedFloats = 64;
    return (rows * width + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }

  kernels::Buffer memory_;
  kernels::Buffer narrow_;  // allocated only on a device that takes narrow rows
  float* work_ = nullptr;   // lies in memory_
  ModelLimits limits_;
};

}  // namespace pagoda::layers
