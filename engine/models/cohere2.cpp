#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/models/decoder.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/families.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

constexpr double kDefaultLogitScale = 0.0625;
constexpr std::array kGgufKeysOfCohere2{GgufKey{"logit_scale", "logit_scale", true, kDefaultLogitScale}};

struct Cohere2Layer {
  LayerNorm norm;
  Attention attention;
  std::unique_ptr<Mlp> mlp;
};

/// The weights of the decoder except its head.
struct Cohere2Weights {
  Embedding embedding;
  std::vector<Cohere2Layer> layers;
  LayerNorm norm;
};

class Cohere2 final : public Decoder {
 public:
  Cohere2(const DecoderConfig& config, Cohere2Weights weights, Head head)
      : Decoder(config, activation_shape(config, weights.layers), std::move(head)), weights_(std::move(weights)) {}

 private:
  const Embedding& token_embedding() const override { return weights_.embedding; }

  void embed(ForwardPass& pass) const override {
    weights_.embedding(pass, pass.batch().token_ids, activations().residual);
  }

  void run_layers(ForwardPass& pass) const override {
    const auto n = pass.num_tokens();
    float* hidden = activations().hidden;
    float* residual = activations().residual;
    for (std::int64_t index = 0; const auto& layer : weights_.layers) {
      pass.show_residual(index++, residual);
      layer.norm(pass, residual, n, hidden);  // attention and MLP read the same rows
      layer.attention(pass, activations(), positions(), hidden, residual, Accumulate::yes);
      layer.mlp->run(pass, activations(), hidden, residual, Accumulate::yes);
    }
  }

  const float* finish(ForwardPass& pass) const override {
    weights_.norm(pass, activations().residual, pass.num_tokens(), activations().hidden);
    return activations().hidden;
  }

  Cohere2Weights weights_;
};

LayerNorm load_layer_norm(const WeightLoader& module, const DecoderConfig& config) {
  return {module, config.hidden_size, config.norm_eps, LayerNormTensors::weight};
}

Result<std::unique_ptr<Model>> build(const DecoderConfig& config, bool bias, double logit_scale,
                                     const weights::WeightSource& source) {
  Status status;
  const WeightLoader root(source, status);
  const auto model = root / "model";
  Cohere2Weights weights;
  weights.embedding = load_embedding(model / "embed_tokens", config, config.hidden_size);
  weights.layers = load_layers<Cohere2Layer>(
      model / "layers", config, [&](const WeightLoader& layer, std::int64_t index) -> Cohere2Layer {
        const auto attention = layer / "self_attn";
        return {.norm = load_layer_norm(layer / "input_layernorm", config),
                .attention = {config.attention_of(index), config.kv_place(index), load_qkv(attention, config, bias),
                              load_attention_output(attention, config, bias)},
                .mlp = load_gated_mlp(layer / "mlp", config)};
      });
  weights.norm = load_layer_norm(model / "norm", config);
  Head head{.linear = load_head(root, config), .modules = root.modules(), .factor = logit_scale};
  if (!status) return fail(std::move(status.error()));
  return std::make_unique<Cohere2>(config, std::move(weights), std::move(head));
}

}  // namespace

/// Cohere's Command R7B (Cohere 2024): attention and MLP read the same LayerNorm, a window and interleaved rotary
/// positions in three of four layers, neither in the others, and scaled logits.
ModelSpec describe_cohere2(ConfigSource& config) {
  constexpr std::int64_t kFullInterval = 4;
  DecoderConfig decoder =
      read_decoder(config, {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5, .tied_by_default = true});
  decoder.positions.front().rotary.interleaved = true;
  read_layer_windows(config, decoder, read_window(config),
                     config.integer("sliding_window_pattern", 1, kMaxLayers, kFullInterval));
  for (LayerShape& layer : decoder.layer_shapes) {
    if (layer.window == 0) layer.position_table = kNoPositions;
  }
  const bool bias = config.boolean("attention_bias", false);
  const double logit_scale = config.number("logit_scale", 0.0, kDefaultLogitScale);
  ModelSpec spec = spec_of_decoder(decoder);
  spec.builder = [=](const weights::WeightSource& source, const RankPlace& rank) {
    return build(decoder.of_rank(rank), bias, logit_scale, source);
  };
  return spec;
}

constexpr GgufArchitecture kCohere2Gguf{.name = "cohere2",
                                        .hugging_face = {"Cohere2ForCausalLM", "cohere2"},
                                        .norm_eps = {"attention.layer_norm_epsilon", "layer_norm_eps", true},
                                        .own_keys = kGgufKeysOfCohere2,
                                        .window = GgufWindow::required,
                                        .windows_by_layer = true};

}  // namespace pagoda::models
