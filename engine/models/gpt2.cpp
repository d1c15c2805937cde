#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/families.hpp"
#include "engine/models/transpose.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

constexpr std::array kGgufKeysOfGpt2{
    GgufKey{"block_count", "n_layer"},         GgufKey{"context_length", "n_positions"},
    GgufKey{"embedding_length", "n_embd"},     GgufKey{"feed_forward_length", "n_inner"},
    GgufKey{"attention.head_count", "n_head"},
};
constexpr std::array kGgufOuterOfGpt2{
    GgufModule{"transformer.wte", "token_embd"},
    GgufModule{"transformer.wpe", "position_embd"},
    GgufModule{"transformer.ln_f", "output_norm"},
    GgufModule{"lm_head", "output"},
};
constexpr std::array kGgufLayersOfGpt2{
    GgufModule{"ln_1", "attn_norm"}, GgufModule{"attn.c_attn", "attn_qkv"}, GgufModule{"attn.c_proj", "attn_output"},
    GgufModule{"ln_2", "ffn_norm"},  GgufModule{"mlp.c_fc", "ffn_up"},      GgufModule{"mlp.c_proj", "ffn_down"},
};

/// The weights of GPT-2 except its head.
struct Gpt2Weights {
  Embedding tokens;
  Embedding positions;
  std::vector<LayerNormLayer> layers;
  LayerNorm norm;
};

class Gpt2 final : public Decoder {
 public:
  Gpt2(const DecoderConfig& config, Gpt2Weights weights, Head head)
      : Decoder(config, activation_shape(config, weights.layers), std::move(head)), weights_(std::move(weights)) {}

 private:
  const Embedding& token_embedding() const override { return weights_.tokens; }

  void embed(ForwardPass& pass) const override {
    weights_.tokens(pass, pass.batch().token_ids, activations().residual);
    weights_.positions.add(pass, pass.batch().positions, activations().residual);
  }

  void run_layers(ForwardPass& pass) const override { run_pre_norm(pass, activations(), positions(), weights_.layers); }

  const float* finish(ForwardPass& pass) const override {
    weights_.norm(pass, activations().residual, pass.num_tokens(), activations().hidden);
    return activations().hidden;
  }

  Gpt2Weights weights_;
};

/// Loads a projection whose weight is stored as [in, out].
Linear load_transposed(const WeightLoader& module, std::int64_t out_features, std::int64_t in_features) {
  return Linear::derived(module,
                         {.tensor = module.full_name("weight"),
                          .stored_rows = in_features,
                          .stored_columns = out_features,
                          .rows = out_features,
                          .columns = in_features,
                          .derive = transpose,
                          .is_transposed = true},
                         true);
}

LayerNormLayer load_layer(const WeightLoader& layer, const DecoderConfig& config, std::int64_t index) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.intermediate_size;
  const std::int64_t queries = config.attention.query_width();
  const auto attention = layer / "attn";
  const auto mlp = layer / "mlp";
  return {.attention_norm = {layer / "ln_1", hidden, config.norm_eps},
          .attention = {config.attention_of(index),
                        config.kv_place(index),
                        {.parts = {load_transposed(attention / "c_attn", 3 * queries, hidden)}},
                        load_transposed(attention / "c_proj", hidden, queries)},
          .mlp_norm = {layer / "ln_2", hidden, config.norm_eps},
          .mlp = std::make_unique<PlainMlp>(load_transposed(mlp / "c_fc", width, hidden), config.activation,
                                            load_transposed(mlp / "c_proj", hidden, width))};
}

Result<std::unique_ptr<Model>> build(const DecoderConfig& config, const weights::WeightSource& source) {
  Status status;
  const WeightLoader root(source, status);
  const std::int64_t hidden = config.hidden_size;
  // The first published files leave out the name of the outer module.
  const auto model = root.contains("transformer.wte.weight") ? root / "transformer" : root;
  Gpt2Weights weights;
  weights.tokens = load_embedding(model / "wte", config, hidden);
  if (config.place.is_in_first_stage()) {
    weights.positions = Embedding::of_positions(model / "wpe", config.max_position_embeddings, hidden, 0);
  }
  weights.layers = load_layers<LayerNormLayer>(model / "h", config, [&](const WeightLoader& layer, std::int64_t index) {
    return load_layer(layer, config, index);
  });
  if (config.place.is_in_last_stage()) weights.norm = LayerNorm(model / "ln_f", hidden, config.norm_eps);
  Head head{.linear = load_head(root, model / "wte", config, hidden), .modules = root.modules()};
  if (!status) return fail(std::move(status.error()));
  return std::make_unique<Gpt2>(config, std::move(weights), std::move(head));
}

}  // namespace

/// GPT-2 (Radford et al. 2019): LayerNorm before each part, learned positions, GELU. Projections are stored as [in,
/// out].
ModelSpec describe_gpt2(ConfigSource& config) {
  DecoderConfig decoder;
  decoder.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  decoder.hidden_size = config.integer("n_embd", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("n_inner", 1, kMaxWidth, 4 * decoder.hidden_size);
  decoder.layer_shapes.resize(static_cast<std::size_t>(config.integer("n_layer", 1, kMaxLayers)));
  const auto num_heads = config.integer("n_head", 1, kMaxHeads);
  decoder.max_position_embeddings = config.integer("n_positions", 1, kMaxPositions);
  decoder.norm_eps = config.number("layer_norm_epsilon", 0.0, 1e-5);
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  decoder.activation = read_activation(config, "activation_function", "gelu_new");
  if (!config.boolean("scale_attn_weights", true) || config.boolean("scale_attn_by_inverse_layer_idx", false)) {
    config.reject("scale_attn_weights", "only the usual scale 1/sqrt(head size) is supported", ErrorCode::unsupported);
  }
  set_learned_positions(config, decoder, num_heads, "n_embd", "n_head");
  ModelSpec spec = spec_of_decoder(decoder);
  spec.builder = [decoder](const weights::WeightSource& source, const RankPlace& rank) {
    return build(decoder.of_rank(rank), source);
  };
  return spec;
}

constexpr GgufArchitecture kGpt2Gguf{.name = "gpt2",
                                     .hugging_face = {"GPT2LMHeadModel", "gpt2"},
                                     .keys = kGgufKeysOfGpt2,
                                     .norm_eps = {"attention.layer_norm_epsilon", "layer_norm_epsilon", true},
                                     .outer = kGgufOuterOfGpt2,
                                     .layers = kGgufLayersOfGpt2,
                                     .layer_prefix = "transformer.h.",
                                     .optional_module = "transformer.",
                                     .activation = "gelu_new",
                                     .activation_key = "activation_function",
                                     .untransposed = true};

}  // namespace pagoda::models
