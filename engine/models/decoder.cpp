#include "engine/models/decoder.hpp"

#include <string>
#include <utility>

#include "engine/layers/mlp.hpp"
#include "engine/models/rope_config.hpp"

namespace pagoda::models {

using namespace layers;

ModelSpec spec_of_decoder(const DecoderConfig& config) {
  const bool is_rotary = config.positions.kind == PositionKind::rotary;
  ModelSpec spec;
  spec.vocab_size = config.vocab_size;
  spec.max_position_embeddings = config.max_position_embeddings;
  spec.position_limit = is_rotary ? position_limit(config.max_position_embeddings, config.positions.rotary.scaling)
                                  : config.max_position_embeddings;
  spec.tie_word_embeddings = config.tie_word_embeddings;
  spec.kv = {{config.attention, config.num_layers}};
  spec.facts = {{"hidden_size", config.hidden_size},
                {"intermediate_size", config.intermediate_size},
                {"num_layers", config.num_layers},
                {"num_heads", config.attention.num_heads},
                {"num_kv_heads", config.attention.num_kv_heads},
                {"head_dim", config.attention.head_dim},
                {"positions", std::string(to_string(config.positions.kind))},
                {"sliding_window", std::int64_t{config.attention.window}}};
  return spec;
}

kernels::Activation read_activation(ConfigSource& config, const char* key, const char* default_name) {
  const auto activation = activation_of(config.string(key, default_name));
  if (!activation) config.reject(key, config.shown(key) + " is not supported", ErrorCode::unsupported);
  return activation.value_or(kernels::Activation::silu);
}

Decoder::Decoder(ActivationShape activations, const PositionShape& positions, Linear head)
    : activation_shape_(std::move(activations)), position_shape_(positions), head_(std::move(head)) {}

ModelMemory Decoder::memory(const ModelLimits& limits, bool narrow_rows) const {
  return {.activation_bytes = Activations::bytes(activation_shape_, limits, narrow_rows),
          .position_bytes = PositionTables::bytes(position_shape_, limits.max_model_len)};
}

Status Decoder::allocate(std::shared_ptr<kernels::Device> device, const ModelLimits& limits) {
  PAGODA_ASSERT(device_ == nullptr, "a model is allocated once");
  device_ = std::move(device);
  auto activations = Activations::create(*device_, activation_shape_, limits);
  if (!activations) return fail(std::move(activations.error()));
  auto positions = PositionTables::create(*device_, position_shape_, limits.max_model_len);
  if (!positions) return fail(std::move(positions.error()));
  activations_ = std::move(*activations);
  positions_ = std::move(*positions);
  return {};
}

Status Decoder::run(kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache) {
  if (auto status = activations_.check_fits(batch); !status) return status;
  ForwardPass pass(device_->ops(), stream, batch, cache);
  hidden_ = run_layers(pass);
  return pass.status();
}

Status Decoder::logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits) {
  if (num_rows == 0) return {};
  if (auto status = activations_.check_logit_rows(num_rows); !status) return status;
  const ForwardBatch no_batch;
  const KvCache no_cache;
  ForwardPass pass(device_->ops(), stream, no_batch, no_cache);
  gather(pass, rows, num_rows, activations_.logit_rows);
  head_(pass, activations_.logit_rows, num_rows, logits);
  return pass.status();
}

Status Decoder::hidden(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* hidden) {
  if (num_rows == 0) return {};
  const ForwardBatch no_batch;
  const KvCache no_cache;
  ForwardPass pass(device_->ops(), stream, no_batch, no_cache);
  gather(pass, rows, num_rows, hidden);
  return pass.status();
}

void Decoder::gather(ForwardPass& pass, const std::int32_t* rows, std::int32_t num_rows, float* out) const {
  PAGODA_ASSERT(hidden_ != nullptr, "rows are of a run");
  pass.run(&kernels::Ops::gather_rows,
           {.x = hidden_, .rows = rows, .num_rows = num_rows, .width = hidden_width(), .out = out});
}

}  // namespace pagoda::models
