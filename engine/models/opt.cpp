#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/families.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct OptConfig {
  DecoderConfig decoder;
  std::int64_t embedding_size = 0;  ///< width of the token embedding, which is projected if it is not hidden_size
  bool biases = true;               ///< whether attention and MLP have biases
  bool post_norm = false;           ///< whether norms follow attention and MLP, as in the 350m model
  LayerNormTensors norm_tensors = LayerNormTensors::weight_and_bias;
};

/// The weights of OPT except its head.
struct OptWeights {
  Embedding tokens;                  ///< [vocab_size, embedding_size]
  Embedding positions;               ///< [max_position_embeddings, hidden_size]
  std::optional<Linear> project_in;  ///< embedding_size -> hidden_size
  std::vector<LayerNormLayer> layers;
  std::optional<LayerNorm> norm;      ///< set unless norms follow the parts
  std::optional<Linear> project_out;  ///< hidden_size -> embedding_size
};

class Opt final : public Decoder {
 public:
  Opt(const OptConfig& config, ActivationShape activations, OptWeights weights, Head head)
      : Decoder(config.decoder, std::move(activations), std::move(head)),
        embedding_size_(config.embedding_size),
        weights_(std::move(weights)) {}

 private:
  const Embedding& token_embedding() const override { return weights_.tokens; }

  void run_layers(ForwardPass& pass) const override {
    if (weights_.norm) {
      run_pre_norm(pass, activations(), positions(), weights_.layers);
    } else {
      run_post_norm(pass);
    }
  }

  const float* finish(ForwardPass& pass) const override {
    float* rows = activations().residual;
    if (weights_.norm) {
      rows = activations().hidden;
      (*weights_.norm)(pass, activations().residual, pass.num_tokens(), rows);
    }
    if (!weights_.project_out) return rows;
    (*weights_.project_out)(pass, rows, pass.num_tokens(), embedding_rows());
    return embedding_rows();
  }

  /// Returns rows [num_tokens, embedding_size].
  float* embedding_rows() const { return activations().work(std::array{embedding_size_})[0]; }

  /// Writes the sums of token and position embeddings to the residual stream.
  void embed(ForwardPass& pass) const override {
    const auto& batch = pass.batch();
    float* residual = activations().residual;
    if (weights_.project_in) {
      weights_.tokens(pass, batch.token_ids, embedding_rows());
      (*weights_.project_in)(pass, embedding_rows(), pass.num_tokens(), residual);
    } else {
      weights_.tokens(pass, batch.token_ids, residual);
    }
    weights_.positions.add(pass, batch.positions, residual);
  }

  void run_post_norm(ForwardPass& pass) const {
    const auto n = pass.num_tokens();
    float* hidden = activations().hidden;
    float* residual = activations().residual;
    for (std::int64_t index = 0; const auto& layer : weights_.layers) {
      pass.show_residual(index++, residual);
      layer.attention(pass, activations(), positions(), residual, hidden, Accumulate::no);
      layer.attention_norm.add_and_norm(pass, hidden, residual, n, residual);
      layer.mlp->run(pass, activations(), residual, hidden, Accumulate::no);
      layer.mlp_norm.add_and_norm(pass, hidden, residual, n, residual);
    }
  }

  std::int64_t embedding_size_;
  OptWeights weights_;
};

LayerNormLayer load_layer(const WeightLoader& layer, const OptConfig& opt, std::int64_t index) {
  const DecoderConfig& config = opt.decoder;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.intermediate_size;
  const auto norm = [&](const char* name) {
    return LayerNorm(layer / name, hidden, config.norm_eps, opt.norm_tensors);
  };
  const auto attention = layer / "self_attn";
  return {.attention_norm = norm("self_attn_layer_norm"),
          .attention = {config.attention_of(index), config.kv_place(index), load_qkv(attention, config, opt.biases),
                        Linear(attention, {"out_proj", hidden}, config.attention.query_width(), opt.biases)},
          .mlp_norm = norm("final_layer_norm"),
          .mlp = std::make_unique<PlainMlp>(Linear(layer, {"fc1", width}, hidden, opt.biases), config.activation,
                                            Linear(layer, {"fc2", hidden}, width, opt.biases))};
}

Result<std::unique_ptr<Model>> build(const OptConfig& opt, const weights::WeightSource& source) {
  constexpr std::int64_t kPositionOffset = 2;  // rows of the position table in front of position 0
  const DecoderConfig& config = opt.decoder;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = opt.embedding_size;
  Status status;
  const WeightLoader root(source, status);
  // The first published files leave out the name of the outer module.
  const auto model = root.contains("model.decoder.embed_tokens.weight") ? root / "model" / "decoder" : root / "decoder";
  OptWeights weights;
  weights.tokens = load_embedding(model / "embed_tokens", config, width);
  const bool projects = width != hidden;
  if (config.place.is_in_first_stage()) {
    weights.positions =
        Embedding::of_positions(model / "embed_positions", config.max_position_embeddings, hidden, kPositionOffset);
    if (projects) weights.project_in = Linear(model, {"project_in", hidden}, width, false);
  }
  if (config.place.is_in_last_stage() && projects) {
    weights.project_out = Linear(model, {"project_out", width}, hidden, false);
  }
  weights.layers = load_layers<LayerNormLayer>(
      model / "layers", config,
      [&](const WeightLoader& layer, std::int64_t index) { return load_layer(layer, opt, index); });
  if (!opt.post_norm) {
    weights.norm = LayerNorm(model / "final_layer_norm", hidden, config.norm_eps, opt.norm_tensors);
  }
  Head head{.linear = load_head(root, model / "embed_tokens", config, width), .modules = root.modules()};
  if (!status) return fail(std::move(status.error()));
  auto activations = activation_shape(config, weights.layers);
  activations.work_widths.push_back({width});
  return std::make_unique<Opt>(opt, std::move(activations), std::move(weights), std::move(head));
}

}  // namespace

/// OPT (Zhang et al. 2022): LayerNorm before each part (350m: after it, with an embedding of another width), learned
/// positions, ReLU.
ModelSpec describe_opt(ConfigSource& config) {
  OptConfig opt;
  DecoderConfig& decoder = opt.decoder;
  decoder.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  decoder.hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("ffn_dim", 1, kMaxWidth);
  decoder.layer_shapes.resize(static_cast<std::size_t>(config.integer("num_hidden_layers", 1, kMaxLayers)));
  const auto num_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  decoder.max_position_embeddings = config.integer("max_position_embeddings", 1, kMaxPositions);
  decoder.norm_eps = 1e-5;
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  decoder.activation = read_activation(config, "activation_function", "relu");
  opt.post_norm = !config.boolean("do_layer_norm_before", true);
  if (!opt.post_norm && config.boolean("_remove_final_layer_norm", false)) {
    config.reject("_remove_final_layer_norm", "is not supported with do_layer_norm_before", ErrorCode::unsupported);
  }
  if (!config.boolean("layer_norm_elementwise_affine", true)) opt.norm_tensors = LayerNormTensors::none;
  opt.biases = config.boolean("enable_bias", true);
  set_learned_positions(config, decoder, num_heads, "hidden_size", "num_attention_heads");
  opt.embedding_size = config.integer("word_embed_proj_dim", 1, decoder.hidden_size, decoder.hidden_size);
  ModelSpec spec = spec_of_decoder(decoder);
  spec.builder = [opt](const weights::WeightSource& source, const RankPlace& rank) {
    OptConfig part = opt;
    part.decoder = opt.decoder.of_rank(rank);
    return build(part, source);
  };
  return spec;
}

}  // namespace pagoda::models
