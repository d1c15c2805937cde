#pragma once

#include <cstdint>

#include "engine/layers/forward_batch.hpp"
#include "engine/layers/rows.hpp"
#include "engine/models/model_config.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// The working memory of a model run: one allocation made at start, sized by the largest batch. The buffers of
/// attention and those of the MLP share memory, since they never live at the same time.
class Activations {
 public:
  Activations() = default;
  /// Errors: out_of_memory.
  static Result<Activations> create(kernels::Device& device, const models::ModelConfig& config,
                                    const ModelLimits& limits);
  /// What create allocates, on a device with or without narrow rows.
  static std::int64_t bytes(const models::ModelConfig& config, const ModelLimits& limits, bool narrow_rows);

  /// An internal error when the batch is larger than what create was given.
  Status admit(const ForwardBatch& batch) const;

  /// [max_tokens, hidden_size]: for the norm of what runs past the parts, read by a linear layer as `dtype`. Where that
  /// is float32 it is `hidden`, else memory of its own.
  Rows normed(DType dtype) const { return dtype == DType::f32 ? Rows(hidden) : Rows(narrow_.as<float>(), dtype); }

  float* hidden = nullptr;      ///< [max_tokens, hidden_size]: input and output of each layer's parts
  float* residual = nullptr;    ///< [max_tokens, hidden_size]: the sum that runs past them
  float* qkv = nullptr;         ///< [max_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
  float* attention = nullptr;   ///< [max_tokens, num_heads * head_dim]
  float* gate_up = nullptr;     ///< [max_tokens, 2 * intermediate_size], shares memory with qkv and attention; not
                                ///< gated: [max_tokens, intermediate_size]
  float* activated = nullptr;   ///< [max_tokens, intermediate_size], likewise; only for a gated MLP
  float* logit_rows = nullptr;  ///< [max_logit_rows, hidden_size]

 private:
  kernels::Buffer memory_;
  kernels::Buffer narrow_;  // only on a device that takes narrow rows
  ModelLimits limits_;
};

}  // namespace pagoda::layers
