#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/attention.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/positions.hpp"
#include "engine/models/config_source.hpp"
#include "engine/models/model_spec.hpp"
#include "kernels/ops.hpp"

namespace pagoda::models {

/// What the configs of all decoders say.
struct DecoderConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< of the MLP
  std::int64_t num_layers = 0;
  std::int64_t max_position_embeddings = 0;
  layers::AttentionShape attention;
  layers::PositionShape positions;
  kernels::Activation activation = kernels::Activation::silu;
  bool tie_word_embeddings = false;
};

/// All of a spec but what builds the model.
ModelSpec spec_of_decoder(const DecoderConfig& config);

/// What attention and the MLPs of loaded layers work on.
template <class Layer>
layers::ActivationShape activation_shape(const DecoderConfig& config, const std::vector<Layer>& layers) {
  const auto attention = config.attention.work_widths();
  layers::ActivationShape shape{.hidden_size = config.hidden_size, .work_widths = {}};
  shape.work_widths.emplace_back(attention.begin(), attention.end());
  for (const Layer& layer : layers) shape.work_widths.push_back(layer.mlp->work_widths());
  return shape;
}

/// The activation that `key` names; one that there is no op for is unsupported.
kernels::Activation read_activation(ConfigSource& config, const char* key, const char* default_name);

/// What decoders have in common as models: the memory that they work in, the hidden rows that they leave, and the head.
/// A decoder of a kind is its layers.
class Decoder : public Model {
 public:
  ModelMemory memory(const layers::ModelLimits& limits, bool narrow_rows) const final;
  Status allocate(std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits) final;
  Status run(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache) final;
  Status logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits) final;
  Status hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) final;
  std::int64_t hidden_width() const final { return head_.in_features(); }

 protected:
  /// `activations`: what the layers ask for.
  Decoder(layers::ActivationShape activations, const layers::PositionShape& positions, layers::Linear head);

  /// Issues the layers; returns the hidden rows [num_tokens, hidden_width()], which stay until the next run.
  virtual const float* run_layers(layers::ForwardPass& pass) const = 0;

  const layers::Activations& activations() const { return activations_; }
  const layers::PositionTables& positions() const { return positions_; }

 private:
  void gather(layers::ForwardPass& pass, const std::int32_t* rows, std::int32_t num_rows, float* out) const;

  layers::ActivationShape activation_shape_;
  layers::PositionShape position_shape_;
  layers::Linear head_;
  std::shared_ptr<kernels::Device> device_;  // this and what follows from allocate on
  layers::Activations activations_;
  layers::PositionTables positions_;
  const float* hidden_ = nullptr;  // of the last run
};

}  // namespace pagoda::models
