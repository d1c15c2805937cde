#include <array>
#include <utility>

#include "engine/layers/weight_loader.hpp"
#include "engine/models/plain_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

constexpr std::int64_t kPositionOffset = 2;  // rows that the position table has in front of position 0
constexpr double kNormEps = 1e-5;

PlainDecoderLayer load_layer(const WeightLoader& layer, const ModelConfig& config, std::int64_t index,
                             kernels::Activation activation) {
  const auto hidden = config.hidden_size;
  const bool bias = config.attention_bias;
  const auto attention = layer / "self_attn";
  const std::array<Projection, 3> qkv{{{"q_proj", hidden}, {"k_proj", hidden}, {"v_proj", hidden}}};
  return {.attention_norm = {layer / "self_attn_layer_norm", hidden, kNormEps, config.affine_norms},
          .attention = {attention_shape(config, index, {}),
                        {.parts = {Linear(attention, qkv, hidden, bias)}},
                        Linear(attention, {"out_proj", hidden}, hidden, bias)},
          .mlp_norm = {layer / "final_layer_norm", hidden, kNormEps, config.affine_norms},
          .mlp = {Linear(layer, {"fc1", config.intermediate_size}, hidden, config.mlp_bias), activation,
                  Linear(layer, {"fc2", hidden}, config.intermediate_size, config.mlp_bias)}};
}

}  // namespace

/// OPT (Zhang et al. 2022): LayerNorm before each part (350m: after it, with an embedding of another width), learned
/// positions, ReLU.
Result<std::unique_ptr<Model>> create_opt(const ModelParts& parts) {
  const auto& config = parts.config;
  const auto activation = activation_of(config.hidden_act);
  if (!activation)
    return fail(ErrorCode::bad_config, "activation_function: there is no such one", "activation_function");
  Status status;
  const WeightLoader root(parts.weights, status);
  const auto decoder =
      root.contains("model.decoder.embed_tokens.weight") ? root / "model" / "decoder" : root / "decoder";

  PlainDecoderWeights weights;
  weights.tokens = Embedding(decoder / "embed_tokens", config.vocab_size, config.embedding_size);
  weights.positions =
      Embedding(decoder / "embed_positions", config.max_position_embeddings + kPositionOffset, config.hidden_size)
          .without_first(kPositionOffset);
  if (config.embedding_size != config.hidden_size) {
    weights.project_in = Linear(decoder, {"project_in", config.hidden_size}, config.embedding_size, false);
    weights.project_out = Linear(decoder, {"project_out", config.embedding_size}, config.hidden_size, false);
  }
  for (std::int64_t i = 0; i < config.num_layers && status; ++i) {
    weights.layers.push_back(load_layer(decoder / "layers" / i, config, i, *activation));
  }
  weights.post_norm = config.post_norm;
  if (config.final_norm) {
    weights.final_norm = LayerNorm(decoder / "final_layer_norm", config.hidden_size, kNormEps, config.affine_norms);
  }
  weights.head =
      LmHead(config.tie_word_embeddings ? Linear(root / "lm_head", {weights.tokens.table()})
                                        : Linear(root, {"lm_head", config.vocab_size}, config.embedding_size, false));
  if (!status) return fail(std::move(status.error()));
  return create_plain_decoder(parts, std::move(weights));
}

}  // namespace pagoda::models
