#include "engine/models/llama_decoder.hpp"

#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/models/decoder.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

class LlamaDecoder final : public Decoder {
 public:
  LlamaDecoder(const DecoderConfig& config, double embedding_factor, Embedding embedding,
               std::vector<LlamaLayer> layers, RmsNorm norm, Head head)
      : Decoder(config, activation_shape(config, layers), std::move(head)),
        hidden_size_(config.hidden_size),
        embedding_factor_(static_cast<float>(embedding_factor)),
        embedding_(std::move(embedding)),
        layers_(std::move(layers)),
        norm_(norm) {}

 private:
  const Embedding& token_embedding() const override { return embedding_; }

  void embed(ForwardPass& pass) const override {
    float* residual = activations().residual;
    embedding_(pass, pass.batch().token_ids, residual);
    if (embedding_factor_ == 1.0F) return;
    pass.run(&kernels::Ops::scale,
             {.x = residual, .num_rows = pass.num_tokens(), .width = hidden_size_, .factor = embedding_factor_});
  }

  void run_layers(ForwardPass& pass) const override {
    const auto n = pass.num_tokens();
    float* residual = activations().residual;
    for (std::int64_t index = 0; const auto& layer : layers_) {
      pass.show_residual(index++, residual);
      const Rows attention_input = activations().normed(layer.attention.input_type(pass));
      layer.attention_norm(pass, residual, n, attention_input);
      layer.attention(pass, activations(), positions(), attention_input, residual, Accumulate::yes);
      const Rows mlp_input = activations().normed(layer.mlp->input_type(pass));
      layer.mlp_norm(pass, residual, n, mlp_input);
      layer.mlp->run(pass, activations(), mlp_input, residual, Accumulate::yes);
    }
  }

  const float* finish(ForwardPass& pass) const override {
    norm_(pass, activations().residual, pass.num_tokens(), activations().hidden);
    return activations().hidden;
  }

  std::int64_t hidden_size_;
  float embedding_factor_;
  Embedding embedding_;
  std::vector<LlamaLayer> layers_;
  RmsNorm norm_;
};

Result<std::unique_ptr<Model>> build(const DecoderConfig& config, const LlamaWeights& load, const LlamaFactors& factors,
                                     const weights::WeightSource& source) {
  Status status;
  const WeightLoader root(source, status);
  const auto model = root / "model";
  Embedding embedding = load_embedding(model / "embed_tokens", config, config.hidden_size);
  auto layers = load_layers<LlamaLayer>(model / "layers", config, [&](const WeightLoader& layer, std::int64_t index) {
    return load.layer(layer, config, index);
  });
  const RmsNorm norm = load_norm(model / "norm", config);
  Head head{.linear = load.head(root, config), .modules = root.modules(), .factor = factors.logits};
  if (!status) return fail(std::move(status.error()));
  return std::make_unique<LlamaDecoder>(config, factors.embedding, std::move(embedding), std::move(layers), norm,
                                        std::move(head));
}

}  // namespace

ModelSpec llama_decoder(const DecoderConfig& config, LlamaWeights weights, const LlamaFactors& factors) {
  ModelSpec spec = spec_of_decoder(config);
  spec.builder = [config, factors, weights = std::move(weights)](const weights::WeightSource& source,
                                                                 const RankPlace& rank) {
    return build(config.of_rank(rank), weights, factors, source);
  };
  return spec;
}

LlamaLayer llama_layer(const WeightLoader& layer, const DecoderConfig& config, std::int64_t index, QkvProjection qkv,
                       std::unique_ptr<Mlp> mlp, bool output_bias) {
  return {.attention_norm = load_norm(layer / "input_layernorm", config),
          .attention = {config.attention_of(index), config.kv_place(index), std::move(qkv),
                        load_attention_output(layer / "self_attn", config, output_bias)},
          .mlp_norm = load_norm(layer / "post_attention_layernorm", config),
          .mlp = std::move(mlp)};
}

LlamaWeights llama_weights(bool attention_bias, bool mlp_bias) {
  return {.layer = [=](const WeightLoader& layer, const DecoderConfig& config, std::int64_t index) {
    return llama_layer(layer, config, index, load_qkv(layer / "self_attn", config, attention_bias),
                       load_gated_mlp(layer / "mlp", config, mlp_bias), attention_bias);
  }};
}

}  // namespace pagoda::models
