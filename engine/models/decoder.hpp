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

/// The config values that all decoders have.
struct DecoderConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< width of the rows inside the MLP
  std::int64_t num_layers = 0;
  std::int64_t max_position_embeddings = 0;
  layers::AttentionShape attention;
  layers::PositionShape positions;
  kernels::Activation activation = kernels::Activation::silu;
  bool tie_word_embeddings = false;
};

/// Returns a spec that is complete except for `build`.
ModelSpec spec_of_decoder(const DecoderConfig& config);

/// Returns the shape of the memory that attention and the MLPs of the loaded layers work in.
template <class Layer>
layers::ActivationShape activation_shape(const DecoderConfig& config, const std::vector<Layer>& layers) {
  const auto attention = config.attention.work_widths();
  layers::ActivationShape shape{.hidden_size = config.hidden_size, .work_widths = {}};
  shape.work_widths.emplace_back(attention.begin(), attention.end());
  for (const Layer& layer : layers) shape.work_widths.push_back(layer.mlp->work_widths());
  return shape;
}

/// Reads the activation that `key` names. An activation without an op is unsupported.
kernels::Activation read_activation(ConfigSource& config, const char* key, const char* default_name);

/// The parts that all decoders share: working memory, the hidden rows of the last run, and the head. Each kind of
/// decoder adds its layers.
class Decoder : public Model {
 public:
  ModelMemory memory(const layers::ModelLimits& limits, bool narrow_rows) const final;
  Status allocate(std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits) final;
  Status run(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache) final;
  Status logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits) final;
  Status hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) final;
  std::int64_t hidden_width() const final { return head_.in_features(); }

 protected:
  /// `activations`: shape of the memory that the layers need.
  Decoder(layers::ActivationShape activations, const layers::PositionShape& positions, layers::Linear head);

  /// Issues the layers. Returns the hidden rows [num_tokens, hidden_width()], which are valid until the next run.
  virtual const float* run_layers(layers::ForwardPass& pass) const = 0;

  const layers::Activations& activations() const { return activations_; }
  const layers::PositionTables& positions() const { return positions_; }

 private:
  void gather(layers::ForwardPass& pass, const std::int32_t* rows, std::int32_t num_rows, float* out) const;

  layers::ActivationShape activation_shape_;
  layers::PositionShape position_shape_;
  layers::Linear head_;
  std::shared_ptr<kernels::Device> device_;  // set by allocate, like the fields below
  layers::Activations activations_;
  layers::PositionTables positions_;
  const float* hidden_ = nullptr;  // rows of the last run
};

}  // namespace pagoda::models
