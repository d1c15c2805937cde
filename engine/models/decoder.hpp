#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/adapter_modules.hpp"
#include "engine/layers/attention.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/positions.hpp"
#include "engine/models/decoder_config.hpp"
#include "engine/models/model_spec.hpp"

namespace pagoda::models {

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

/// The last part of a model: logits = linear(hidden rows), scaled as ScaleParams describes.
struct Head {
  layers::Linear linear;                                  ///< empty before the last stage
  std::shared_ptr<const layers::AdapterModules> modules;  ///< of the whole model (WeightLoader::modules)
  double factor = 1.0;
  double softcap = 0.0;
};

/// The parts that all decoders share: working memory, the hidden rows of the last run, and the head. A family adds its
/// layers.
class Decoder : public Model {
 public:
  ModelMemory memory(const layers::ModelLimits& limits, bool narrow_rows) const final;
  Status allocate(std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits) final;
  void connect(kernels::Communicator& ranks) final;
  Status run(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache) final;
  Status logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits,
                const layers::BatchAdapters* adapters) final;
  Status hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) final;
  std::int64_t hidden_width() const final { return head_.linear.in_features(); }
  const layers::AdapterModules& adapter_modules() const final { return *head_.modules; }

 protected:
  /// `activations`: shape of the memory that the layers need.
  Decoder(const DecoderConfig& config, layers::ActivationShape activations, Head head);

  // The run of a stage: embed in the first one, run_layers in each, and finish in the last one. Stages pass the
  // residual stream on, [num_tokens, hidden_size].

  /// Writes the rows of the tokens to the residual stream.
  virtual void embed(layers::ForwardPass& pass) const = 0;
  /// Issues the layers, which change the residual stream.
  virtual void run_layers(layers::ForwardPass& pass) const = 0;
  /// Returns the hidden rows [num_tokens, hidden_width()], which are valid until the next run.
  virtual const float* finish(layers::ForwardPass& pass) const = 0;

  const layers::Activations& activations() const { return activations_; }
  /// The tables of DecoderConfig::positions.
  const std::vector<layers::PositionTables>& positions() const { return positions_; }

 private:
  /// Errors: rows beyond `num_rows`, or an adapter that is not bound to this model (internal).
  Status check(const layers::BatchAdapters* adapters, std::int64_t num_rows) const;
  Status check(const layers::BatchPrompts* prompts, std::int64_t num_rows) const;
  void gather(layers::ForwardPass& pass, const std::int32_t* rows, std::int32_t num_rows, float* out) const;

  RankPlace place_;
  layers::ActivationShape activation_shape_;
  std::vector<layers::PositionShape> position_shapes_;
  Head head_;
  std::vector<std::int64_t> vocab_parts_;  // rows of the head that each rank has
  kernels::Communicator* ranks_ = nullptr;
  std::shared_ptr<kernels::Device> device_;  // set by allocate, like the fields below
  layers::Activations activations_;
  std::vector<layers::PositionTables> positions_;
  const float* hidden_ = nullptr;  // rows of the last run
};

}  // namespace pagoda::models
