#include <array>
#include <utility>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/attention.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/rotary.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct LlamaLayer {
  RmsNorm input_layernorm;
  Attention self_attn;
  RmsNorm post_attention_layernorm;
  GatedMlp mlp;
};

Attention load_attention(const WeightLoader& loader, const ModelConfig& config, const AttentionShape& shape,
                         std::int64_t layer) {
  const std::array<Projection, 3> qkv{
      {{"q_proj", shape.query_width()}, {"k_proj", shape.kv_width()}, {"v_proj", shape.kv_width()}}};
  return {layer, shape, Linear(loader, qkv, config.hidden_size, config.attention_bias),
          Linear(loader, {"o_proj", config.hidden_size}, shape.query_width(), config.attention_bias)};
}

GatedMlp load_mlp(const WeightLoader& loader, const ModelConfig& config, kernels::Activation activation) {
  const std::array<Projection, 2> gate_up{
      {{"gate_proj", config.intermediate_size}, {"up_proj", config.intermediate_size}}};
  return {Linear(loader, gate_up, config.hidden_size, config.mlp_bias), activation,
          Linear(loader, {"down_proj", config.hidden_size}, config.intermediate_size, config.mlp_bias)};
}

/// Llama (Touvron et al. 2023): pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
class Llama final : public Model {
 public:
  Llama(const ModelConfig& config, std::shared_ptr<kernels::Device> device, Activations activations, RotaryTable rotary)
      : hidden_size_(config.hidden_size),
        device_(std::move(device)),
        activations_(std::move(activations)),
        rotary_(std::move(rotary)) {}

  Status load(const WeightSource& weights, const ModelConfig& config) {
    const auto activation = activation_of(config.hidden_act);
    if (!activation) return fail(ErrorCode::bad_config, "hidden_act: no activation is called so", "hidden_act");
    const AttentionShape shape{.num_layers = config.num_layers,
                               .num_heads = config.num_heads,
                               .num_kv_heads = config.num_kv_heads,
                               .head_dim = config.head_dim,
                               .rotary = &rotary_};
    Status status;
    const WeightLoader root(weights, status);
    const auto model = root / "model";
    embed_tokens_ = Embedding(model / "embed_tokens", config.vocab_size, config.hidden_size);
    for (std::int64_t i = 0; i < config.num_layers && status; ++i) {
      const auto layer = model / "layers" / i;
      layers_.push_back(
          {.input_layernorm = {layer / "input_layernorm", config.hidden_size, config.norm_eps},
           .self_attn = load_attention(layer / "self_attn", config, shape, i),
           .post_attention_layernorm = {layer / "post_attention_layernorm", config.hidden_size, config.norm_eps},
           .mlp = load_mlp(layer / "mlp", config, *activation)});
    }
    norm_ = RmsNorm(model / "norm", config.hidden_size, config.norm_eps);
    lm_head_ =
        LmHead(config.tie_word_embeddings ? Linear(embed_tokens_.table())
                                          : Linear(root, {"lm_head", config.vocab_size}, config.hidden_size, false));
    return status;
  }

  Status forward(kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache, float* logits) override {
    if (auto status = activations_.admit(batch); !status) return status;
    ForwardPass pass(device_->ops(), stream, batch, cache);
    const auto n = pass.num_tokens();
    float* hidden = activations_.hidden;
    float* residual = activations_.residual;

    embed_tokens_(pass, residual);
    layers_.front().input_layernorm(pass, residual, n, hidden);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto& layer = layers_[i];
      if (i > 0) layer.input_layernorm.add_and_norm(pass, hidden, residual, n, hidden);
      layer.self_attn(pass, activations_);
      layer.post_attention_layernorm.add_and_norm(pass, hidden, residual, n, hidden);
      layer.mlp(pass, activations_);
    }
    norm_.add_and_norm(pass, hidden, residual, n, hidden);
    lm_head_(pass, activations_, hidden_size_, logits);
    return pass.status();
  }

 private:
  std::int64_t hidden_size_;
  std::shared_ptr<kernels::Device> device_;
  Activations activations_;
  RotaryTable rotary_;
  Embedding embed_tokens_;
  std::vector<LlamaLayer> layers_;
  RmsNorm norm_;
  LmHead lm_head_;
};

}  // namespace

Result<std::unique_ptr<Model>> create_llama(const ModelConfig& config, const WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device, const ModelLimits& limits) {
  auto activations = Activations::create(*device, config, limits);
  if (!activations) return fail(std::move(activations.error()));
  auto rotary =
      RotaryTable::create(*device, limits.max_model_len,
                          {.rotary_dim = config.head_dim, .theta = config.rope_theta, .scaling = config.rope_scaling});
  if (!rotary) return fail(std::move(rotary.error()));
  auto model = std::make_unique<Llama>(config, std::move(device), std::move(*activations), std::move(*rotary));
  if (auto status = model->load(weights, config); !status) return fail(std::move(status.error()));
  return model;
}

}  // namespace pagoda::models
