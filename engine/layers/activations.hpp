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

/// How wide the rows are that a model works on, in floats per token.
struct ActivationShape {
  std::int64_t hidden_size = 0;
  /// Of each kind of part (attention, MLP), the widths of its working rows, as its work_widths() tells them. Parts
  /// never run at the same time, so they share memory.
  std::vector<std::vector<std::int64_t>> work_widths;
};

/// The working memory of a model run: one allocation made at start, sized by the largest batch.
class Activations {
 public:
  Activations() = default;
  /// Errors: out_of_memory.
  static Result<Activations> create(kernels::Device& device, const ActivationShape& shape, const ModelLimits& limits);
  /// What create allocates, on a device with or without narrow rows.
  static std::int64_t bytes(const ActivationShape& shape, const ModelLimits& limits, bool narrow_rows);

  /// An internal error when the batch is larger than what create was given.
  Status admit(const ForwardBatch& batch) const;
  /// The same for rows whose logits are asked for at once.
  Status admit_logit_rows(std::int32_t num_rows) const;

  /// [max_tokens, hidden_size]: for the norm of what runs past the parts, read by a linear layer as `dtype`. Where that
  /// is float32 it is `hidden`, else memory of its own.
  Rows normed(DType dtype) const { return dtype == DType::f32 ? Rows(hidden) : Rows(narrow_.as<float>(), dtype); }

  /// The working rows of a part that is running: matrices [max_tokens, width] for widths that the shape has of a part.
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
  float* residual = nullptr;    ///< [max_tokens, hidden_size]: the sum that runs past them
  float* logit_rows = nullptr;  ///< [max_logit_rows, hidden_size]

 private:
  struct Layout;
  static Layout lay_out(const ActivationShape& shape, const ModelLimits& limits);
  /// Floats of a matrix: whole packs of 256 bytes, which matrix products on a GPU like best.
  static std::int64_t area(std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t kAlignedFloats = 64;
    return (rows * width + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }

  kernels::Buffer memory_;
  kernels::Buffer narrow_;  // only on a device that takes narrow rows
  float* work_ = nullptr;   // of memory_
  ModelLimits limits_;
};

}  // namespace pagoda::layers
