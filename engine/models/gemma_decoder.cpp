#include "engine/models/gemma_decoder.hpp"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/models/decoder.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct GemmaLayer {
  RmsNorm input_norm;
  Attention attention;
  RmsNorm attention_output_norm;
  RmsNorm mlp_norm;
  std::unique_ptr<Mlp> mlp;
  RmsNorm mlp_output_norm;
};

class GemmaDecoder final : public Decoder {
 public:
  GemmaDecoder(const GemmaConfig& config, Embedding embedding, std::vector<GemmaLayer> layers, RmsNorm norm, Head head)
      : Decoder(config.decoder, activation_shape(config.decoder, layers), std::move(head)),
        embedding_(std::move(embedding)),
        layers_(std::move(layers)),
        norm_(norm) {}

 private:
  const Embedding& token_embedding() const override { return embedding_; }

  void embed(ForwardPass& pass) const override { embedding_(pass, pass.batch().token_ids, activations().residual); }

  void run_layers(ForwardPass& pass) const override {
    const auto n = pass.num_tokens();
    float* residual = activations().residual;
    float* hidden = activations().hidden;  // output of the last part, which the next norm adds to the residual stream
    for (std::int64_t index = 0; const auto& layer : layers_) {
      const Rows attention_input = activations().normed(layer.attention.input_type(pass));
      if (index == 0) {
        layer.input_norm(pass, residual, n, attention_input);
      } else {
        layer.input_norm.add_and_norm(pass, hidden, residual, n, attention_input);
      }
      pass.show_residual(index++, residual);
      layer.attention(pass, activations(), positions(), attention_input, hidden, Accumulate::no);
      layer.attention_output_norm(pass, hidden, n, hidden);
      const Rows mlp_input = activations().normed(layer.mlp->input_type(pass));
      layer.mlp_norm.add_and_norm(pass, hidden, residual, n, mlp_input);
      layer.mlp->run(pass, activations(), mlp_input, hidden, Accumulate::no);
      layer.mlp_output_norm(pass, hidden, n, hidden);
    }
    // The next stage needs only the sum, which comes with a norm of it.
    norm_.add_and_norm(pass, hidden, residual, n, hidden);
  }

  const float* finish(ForwardPass&) const override { return activations().hidden; }

  Embedding embedding_;
  std::vector<GemmaLayer> layers_;
  RmsNorm norm_;
};

GemmaLayer load_layer(const WeightLoader& layer, const GemmaConfig& gemma, std::int64_t index) {
  const DecoderConfig& config = gemma.decoder;
  const auto norm = [&](const char* name) { return load_norm(layer / name, config, gemma.norm_offset); };
  const auto attention = layer / "self_attn";
  return {
      .input_norm = norm("input_layernorm"),
      .attention = {config.attention_of(index), config.kv_place(index),
                    gemma.head_norms ? load_qkv_with_norms(attention, config, gemma.attention_bias, gemma.norm_offset)
                                     : load_qkv(attention, config, gemma.attention_bias),
                    load_attention_output(attention, config, gemma.attention_bias)},
      .attention_output_norm = norm("post_attention_layernorm"),
      .mlp_norm = norm("pre_feedforward_layernorm"),
      .mlp = load_gated_mlp(layer / "mlp", config),
      .mlp_output_norm = norm("post_feedforward_layernorm")};
}

Result<std::unique_ptr<Model>> build(const GemmaConfig& gemma, const weights::WeightSource& source) {
  const DecoderConfig& config = gemma.decoder;
  Status status;
  const WeightLoader root(source, status);
  const auto model = root / "model";
  const auto factor = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  Embedding embedding = load_embedding(model / "embed_tokens", config, config.hidden_size, factor);
  auto layers = load_layers<GemmaLayer>(model / "layers", config, [&](const WeightLoader& layer, std::int64_t index) {
    return load_layer(layer, gemma, index);
  });
  const RmsNorm norm = load_norm(model / "norm", config, gemma.norm_offset);
  Head head{.linear = load_head(root, config), .modules = root.modules(), .softcap = gemma.logit_softcap};
  if (!status) return fail(std::move(status.error()));
  return std::make_unique<GemmaDecoder>(gemma, std::move(embedding), std::move(layers), norm, std::move(head));
}

/// Reads a softcap; null means none.
double read_softcap(ConfigSource& config, const char* key, double default_softcap) {
  if (config.mentions(key) && !config.has(key)) return 0.0;
  return default_softcap == 0.0 && !config.has(key) ? 0.0 : config.number(key, 0.0, default_softcap);
}

}  // namespace

GemmaConfig read_gemma(ConfigSource& config, const GemmaKeys& keys) {
  constexpr std::int64_t kDefaultHeadDim = 256;
  constexpr double kDefaultScalar = 256.0;
  GemmaConfig gemma;
  DecoderConfig& decoder = gemma.decoder;
  decoder = read_decoder(config, {.activation = "hidden_activation",
                                  .default_activation = "gelu_pytorch_tanh",
                                  .default_head_dim = kDefaultHeadDim,
                                  .default_theta = keys.default_theta,
                                  .tied_by_default = true,
                                  .sizes = keys.sizes});
  const std::int64_t full_interval = keys.full_interval_key == nullptr
                                         ? keys.full_interval
                                         : config.integer(keys.full_interval_key, 1, kMaxLayers, keys.full_interval);
  read_layer_windows(config, decoder, read_window(config), full_interval);
  decoder.attention.scale = 1.0 / std::sqrt(config.number("query_pre_attn_scalar", 0.0, kDefaultScalar));
  decoder.attention.softcap = read_softcap(config, "attn_logit_softcapping", keys.attention_softcap);
  gemma.logit_softcap = read_softcap(config, "final_logit_softcapping", keys.logit_softcap);
  gemma.attention_bias = config.boolean("attention_bias", false);
  if (config.boolean("norm_weights_include_one", false)) gemma.norm_offset = 0.0F;
  if (config.boolean("use_bidirectional_attention", false)) {
    config.reject("use_bidirectional_attention", "only causal attention is supported", ErrorCode::unsupported);
  }
  return gemma;
}

ModelSpec gemma_decoder(const GemmaConfig& config) {
  ModelSpec spec = spec_of_decoder(config.decoder);
  spec.builder = [config](const weights::WeightSource& source, const RankPlace& rank) {
    GemmaConfig part = config;
    part.decoder = config.decoder.of_rank(rank);
    return build(part, source);
  };
  return spec;
}

}  // namespace pagoda::models
