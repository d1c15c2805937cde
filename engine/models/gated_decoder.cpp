#include "engine/models/gated_decoder.hpp"

#include <array>
#include <memory>
#include <utility>

#include "engine/layers/embedding.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/normalized_rows.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct GatedDecoderLayer {
  RmsNorm input_layernorm;
  Attention self_attn;
  RmsNorm post_attention_layernorm;
  std::unique_ptr<Mlp> mlp;
};

/// The weights of a gated decoder except its head, under their names in Llama.
struct GatedDecoderWeights {
  Embedding embed_tokens;
  std::vector<GatedDecoderLayer> layers;
  RmsNorm norm;
};

QkvProjection load_qkv(const WeightLoader& loader, const GatedDecoderConfig& config) {
  const AttentionShape& shape = config.attention;
  const auto hidden = config.hidden_size;
  const bool bias = config.attention_bias;
  if (config.packed_qkv != nullptr) {
    return {.parts = {Linear(loader, {config.packed_qkv, shape.query_width() + 2 * shape.kv_width()}, hidden, bias)}};
  }
  const std::array<Projection, 3> qkv{
      {{"q_proj", shape.query_width()}, {"k_proj", shape.kv_width()}, {"v_proj", shape.kv_width()}}};
  if (!config.head_norms) return {.parts = {Linear(loader, qkv, hidden, bias)}};
  return {.parts = {Linear(loader, qkv[0], hidden, bias), Linear(loader, qkv[1], hidden, bias),
                    Linear(loader, qkv[2], hidden, bias)},
          .head_norms = HeadNorms{.query = RmsNorm(loader / "q_norm", shape.head_dim, config.norm_eps),
                                  .key = RmsNorm(loader / "k_norm", shape.head_dim, config.norm_eps)}};
}

Attention load_attention(const WeightLoader& loader, const GatedDecoderConfig& config, std::int64_t layer) {
  AttentionShape shape = config.attention;
  if (!config.layer_windows.empty()) shape.window = config.layer_windows[static_cast<std::size_t>(layer)];
  return {shape, layer, load_qkv(loader, config),
          Linear(loader, {"o_proj", config.hidden_size}, shape.query_width(), config.attention_output_bias)};
}

Linear load_gate_up(const WeightLoader& loader, const GatedDecoderConfig& config) {
  const auto width = config.intermediate_size;
  if (config.packed_gate_up != nullptr) {
    return {loader, {config.packed_gate_up, 2 * width}, config.hidden_size, config.mlp_bias};
  }
  const std::array<Projection, 2> gate_up{{{"gate_proj", width}, {"up_proj", width}}};
  return {loader, gate_up, config.hidden_size, config.mlp_bias};
}

std::unique_ptr<Mlp> load_gated_mlp(const WeightLoader& loader, const GatedDecoderConfig& config) {
  return std::make_unique<GatedMlp>(
      load_gate_up(loader, config), config.activation,
      Linear(loader, {"down_proj", config.hidden_size}, config.intermediate_size, config.mlp_bias));
}

Linear load_head(const WeightLoader& root, const GatedDecoderConfig& config) {
  const auto embed_tokens = root / "model" / "embed_tokens";
  const auto rows = config.vocab_size;
  const auto columns = config.hidden_size;
  const bool tied = config.tie_word_embeddings;
  if (config.normalized_head) {
    const auto stored = tied ? embed_tokens : root / "lm_head";
    return Linear::derived(root / "lm_head",
                           {.tensor = stored.full_name("weight"),
                            .stored_rows = rows,
                            .stored_columns = columns,
                            .rows = rows,
                            .columns = columns,
                            .derive = normalize_rows},
                           false);
  }
  return tied ? Linear::tied(root / "lm_head", embed_tokens, rows, columns)
              : Linear(root, {"lm_head", rows}, columns, false);
}

GatedDecoderWeights load(const WeightLoader& model, const GatedDecoderConfig& config) {
  GatedDecoderWeights weights;
  weights.embed_tokens = Embedding(model / "embed_tokens", config.vocab_size, config.hidden_size);
  for (std::int64_t i = 0; i < config.num_layers && model.status(); ++i) {
    const auto layer = model / "layers" / i;
    weights.layers.push_back(
        {.input_layernorm = {layer / "input_layernorm", config.hidden_size, config.norm_eps},
         .self_attn = load_attention(layer / "self_attn", config, i),
         .post_attention_layernorm = {layer / "post_attention_layernorm", config.hidden_size, config.norm_eps},
         .mlp = config.load_mlp ? config.load_mlp(layer, i) : load_gated_mlp(layer / "mlp", config)});
  }
  weights.norm = RmsNorm(model / "norm", config.hidden_size, config.norm_eps);
  return weights;
}

class GatedDecoder final : public Decoder {
 public:
  GatedDecoder(ActivationShape activations, const PositionShape& positions, GatedDecoderWeights weights, Linear head)
      : Decoder(std::move(activations), positions, std::move(head)), weights_(std::move(weights)) {}

 private:
  const float* run_layers(ForwardPass& pass) const override {
    const auto n = pass.num_tokens();
    float* residual = activations().residual;
    weights_.embed_tokens(pass, pass.batch().token_ids, residual);
    for (const auto& layer : weights_.layers) {
      const Rows attention_input = activations().normed(layer.self_attn.input_type(pass));
      layer.input_layernorm(pass, residual, n, attention_input);
      layer.self_attn(pass, activations(), positions(), attention_input, residual, Accumulate::yes);
      const Rows mlp_input = activations().normed(layer.mlp->input_type(pass));
      layer.post_attention_layernorm(pass, residual, n, mlp_input);
      layer.mlp->run(pass, activations(), mlp_input, residual, Accumulate::yes);
    }
    weights_.norm(pass, residual, n, activations().hidden);
    return activations().hidden;
  }

  GatedDecoderWeights weights_;
};

Result<std::unique_ptr<Model>> build(const GatedDecoderConfig& config, const weights::WeightSource& source) {
  Status status;
  const WeightLoader root(source, status);
  auto weights = load(root / "model", config);
  auto head = load_head(root, config);
  if (!status) return fail(std::move(status.error()));
  auto activations = activation_shape(config, weights.layers);
  return std::make_unique<GatedDecoder>(std::move(activations), config.positions, std::move(weights), std::move(head));
}

}  // namespace

ModelSpec spec_of(const GatedDecoderConfig& config) {
  ModelSpec spec = spec_of_decoder(config);
  spec.facts.emplace_back("normalized_head", config.normalized_head);
  spec.build = [config](const weights::WeightSource& source) { return build(config, source); };
  return spec;
}

}  // namespace pagoda::models
