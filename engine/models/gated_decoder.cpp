#include "engine/models/gated_decoder.hpp"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/attention.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/normalized_rows.hpp"
#include "engine/layers/positions.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct GatedDecoderLayer {
  RmsNorm input_layernorm;
  Attention self_attn;
  RmsNorm post_attention_layernorm;
  GatedMlp mlp;
};

QkvProjection load_qkv(const WeightLoader& loader, const ModelConfig& config, const AttentionShape& shape,
                       const GatedDecoderTraits& traits) {
  const auto hidden = config.hidden_size;
  const bool bias = config.attention_bias;
  if (traits.packed_qkv != nullptr) {
    return {.parts = {Linear(loader, {traits.packed_qkv, shape.query_width() + 2 * shape.kv_width()}, hidden, bias)}};
  }
  const std::array<Projection, 3> qkv{
      {{"q_proj", shape.query_width()}, {"k_proj", shape.kv_width()}, {"v_proj", shape.kv_width()}}};
  if (!traits.head_norms) return {.parts = {Linear(loader, qkv, hidden, bias)}};
  return {.parts = {Linear(loader, qkv[0], hidden, bias), Linear(loader, qkv[1], hidden, bias),
                    Linear(loader, qkv[2], hidden, bias)},
          .head_norms = HeadNorms{.query = RmsNorm(loader / "q_norm", shape.head_dim, config.norm_eps),
                                  .key = RmsNorm(loader / "k_norm", shape.head_dim, config.norm_eps)}};
}

Attention load_attention(const WeightLoader& loader, const ModelConfig& config, const AttentionShape& shape,
                         const GatedDecoderTraits& traits) {
  return {shape, load_qkv(loader, config, shape, traits),
          Linear(loader, {"o_proj", config.hidden_size}, shape.query_width(), config.attention_output_bias)};
}

GatedMlp load_mlp(const WeightLoader& loader, const ModelConfig& config, kernels::Activation activation) {
  const std::array<Projection, 2> gate_up{
      {{"gate_proj", config.intermediate_size}, {"up_proj", config.intermediate_size}}};
  return {Linear(loader, gate_up, config.hidden_size, config.mlp_bias), activation,
          Linear(loader, {"down_proj", config.hidden_size}, config.intermediate_size, config.mlp_bias)};
}

class GatedDecoder final : public Model {
 public:
  GatedDecoder(std::shared_ptr<kernels::Device> device, Activations activations, PositionTables positions)
      : device_(std::move(device)), activations_(std::move(activations)), positions_(std::move(positions)) {}

  Status load(const weights::WeightSource& weights, const ModelConfig& config, const GatedDecoderTraits& traits) {
    const auto activation = activation_of(config.hidden_act);
    if (!activation) return fail(ErrorCode::bad_config, "hidden_act: there is no such activation", "hidden_act");
    Status status;
    const WeightLoader root(weights, status);
    const auto model = root / "model";
    embed_tokens_ = Embedding(model / "embed_tokens", config.vocab_size, config.hidden_size);
    for (std::int64_t i = 0; i < config.num_layers && status; ++i) {
      const auto layer = model / "layers" / i;
      layers_.push_back(
          {.input_layernorm = {layer / "input_layernorm", config.hidden_size, config.norm_eps},
           .self_attn = load_attention(layer / "self_attn", config, attention_shape(config, i, positions_), traits),
           .post_attention_layernorm = {layer / "post_attention_layernorm", config.hidden_size, config.norm_eps},
           .mlp = load_mlp(layer / "mlp", config, *activation)});
    }
    norm_ = RmsNorm(model / "norm", config.hidden_size, config.norm_eps);
    lm_head_ = LmHead(load_head(root, config, status));
    return status;
  }

  Status forward(kernels::Stream& stream, const layers::ForwardBatch& batch, const layers::KvCache& cache,
                 float* logits) override {
    if (auto status = activations_.admit(batch); !status) return status;
    ForwardPass pass(device_->ops(), stream, batch, cache);
    const auto n = pass.num_tokens();
    float* residual = activations_.residual;

    embed_tokens_(pass, batch.token_ids, residual);
    for (const auto& layer : layers_) {
      const Rows attention_input = activations_.normed(layer.self_attn.input_type(pass));
      layer.input_layernorm(pass, residual, n, attention_input);
      layer.self_attn(pass, activations_, attention_input, residual, Into::add);
      const Rows mlp_input = activations_.normed(layer.mlp.input_type(pass));
      layer.post_attention_layernorm(pass, residual, n, mlp_input);
      layer.mlp(pass, activations_, mlp_input, residual, Into::add);
    }
    norm_(pass, residual, n, activations_.hidden);
    lm_head_(pass, activations_, activations_.hidden, logits);
    return pass.status();
  }

  Status more_logits(kernels::Stream& stream, const std::int32_t* rows, std::int32_t num_rows, float* logits) override {
    const layers::ForwardBatch batch{.logit_rows = rows, .num_logit_rows = num_rows};
    if (auto status = activations_.admit(batch); !status) return status;
    const layers::KvCache no_cache;
    ForwardPass pass(device_->ops(), stream, batch, no_cache);
    lm_head_(pass, activations_, activations_.hidden, logits);
    return pass.status();
  }

 private:
  Linear load_head(const WeightLoader& root, const ModelConfig& config, Status& status) {
    const bool tied = config.tie_word_embeddings;
    if (!config.normalized_head) {
      return tied ? Linear(root / "lm_head", {embed_tokens_.table()})
                  : Linear(root, {"lm_head", config.vocab_size}, config.hidden_size, false);
    }
    const auto stored = tied ? root / "model" / "embed_tokens" : root / "lm_head";
    auto weight = stored.host_matrix("weight", config.vocab_size, config.hidden_size);
    if (!status) return {};
    auto rows = normalized_rows(weight);
    if (!rows) {
      status = fail(std::move(rows.error()));
      return {};
    }
    weight.data = rows->data();
    return {root / "lm_head", {weight, std::make_shared<kernels::Buffer>(std::move(*rows))}};
  }

  std::shared_ptr<kernels::Device> device_;
  Activations activations_;
  PositionTables positions_;
  Embedding embed_tokens_;
  std::vector<GatedDecoderLayer> layers_;
  RmsNorm norm_;
  LmHead lm_head_;
};

}  // namespace

Result<std::unique_ptr<Model>> create_gated_decoder(const ModelParts& parts, const GatedDecoderTraits& traits) {
  auto activations = Activations::create(*parts.device, parts.config, parts.limits);
  if (!activations) return fail(std::move(activations.error()));
  auto positions = PositionTables::create(*parts.device, parts.config, parts.limits);
  if (!positions) return fail(std::move(positions.error()));
  auto model = std::make_unique<GatedDecoder>(parts.device, std::move(*activations), std::move(*positions));
  if (auto status = model->load(parts.weights, parts.config, traits); !status) return fail(std::move(status.error()));
  return model;
}

}  // namespace pagoda::models
