#include "engine/models/plain_decoder.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/embedding.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::models {
namespace {

using namespace layers;

struct PlainDecoderLayer {
  LayerNorm attention_norm;
  Attention attention;
  LayerNorm mlp_norm;
  std::unique_ptr<Mlp> mlp;
};

/// The weights of a plain decoder except its head.
struct PlainDecoderWeights {
  Embedding tokens;                  ///< [vocab_size, embedding_size]
  Embedding positions;               ///< [max_position_embeddings, hidden_size]
  std::optional<Linear> project_in;  ///< embedding_size -> hidden_size
  std::vector<PlainDecoderLayer> layers;
  std::optional<LayerNorm> final_norm;
  std::optional<Linear> project_out;  ///< hidden_size -> embedding_size
};

template <class Element>
void transpose_elements(const kernels::WeightMatrix& stored, std::byte* weight) {
  const auto* from = static_cast<const Element*>(stored.data);
  auto* to = reinterpret_cast<Element*>(weight);
  for (std::int64_t row = 0; row < stored.rows; ++row) {
    for (std::int64_t column = 0; column < stored.columns; ++column) {
      to[column * stored.rows + row] = from[row * stored.columns + column];
    }
  }
}

void transpose(const kernels::WeightMatrix& stored, std::byte* weight) {
  if (size_of(stored.dtype) == 4) return transpose_elements<std::uint32_t>(stored, weight);
  transpose_elements<std::uint16_t>(stored, weight);
}

/// Loads a projection of attention or MLP.
Linear load_projection(const WeightLoader& layer, const PlainDecoderConfig& config, const Projection& projection,
                       std::int64_t in_features) {
  const auto [name, out_features] = projection;
  if (!config.transposed_weights) return {layer, projection, in_features, config.biases};
  const auto module = layer / name;
  return Linear::derived(module,
                         {.tensor = module.full_name("weight"),
                          .stored_rows = in_features,
                          .stored_columns = out_features,
                          .rows = out_features,
                          .columns = in_features,
                          .derive = transpose,
                          .is_transposed = true},
                         config.biases);
}

QkvProjection load_qkv(const WeightLoader& layer, const PlainDecoderConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const auto& [query, key, value] = config.names.qkv;
  if (key == nullptr) return {.parts = {load_projection(layer, config, {query, 3 * hidden}, hidden)}};
  PAGODA_ASSERT(!config.transposed_weights, "transposed projections come as one");
  const std::array<Projection, 3> qkv{{{query, hidden}, {key, hidden}, {value, hidden}}};
  return {.parts = {Linear(layer, qkv, hidden, config.biases)}};
}

PlainDecoderLayer load_layer(const WeightLoader& layer, const PlainDecoderConfig& config, std::int64_t index) {
  const std::int64_t hidden = config.hidden_size;
  const PlainDecoderNames& names = config.names;
  return {.attention_norm = {layer / names.attention_norm, hidden, config.norm_eps, config.affine_norms},
          .attention = {config.attention, index, load_qkv(layer, config),
                        load_projection(layer, config, {names.attention_output, hidden}, hidden)},
          .mlp_norm = {layer / names.mlp_norm, hidden, config.norm_eps, config.affine_norms},
          .mlp = std::make_unique<PlainMlp>(
              load_projection(layer, config, {names.up, config.intermediate_size}, hidden), config.activation,
              load_projection(layer, config, {names.down, hidden}, config.intermediate_size))};
}

PlainDecoderWeights load(const WeightLoader& model, const PlainDecoderConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const PlainDecoderNames& names = config.names;
  PlainDecoderWeights weights;
  weights.tokens = Embedding(model / names.tokens, config.vocab_size, config.embedding_size);
  weights.positions =
      Embedding::of_positions(model / names.positions, config.max_position_embeddings, hidden, config.position_offset);
  if (config.embedding_size != hidden) {
    weights.project_in = Linear(model, {names.project_in, hidden}, config.embedding_size, false);
    weights.project_out = Linear(model, {names.project_out, config.embedding_size}, hidden, false);
  }
  for (std::int64_t i = 0; i < config.num_layers && model.status(); ++i) {
    weights.layers.push_back(load_layer(model / names.layers / i, config, i));
  }
  if (config.final_norm) {
    weights.final_norm = LayerNorm(model / names.final_norm, hidden, config.norm_eps, config.affine_norms);
  }
  return weights;
}

Linear load_head(const WeightLoader& root, const WeightLoader& model, const PlainDecoderConfig& config) {
  const std::int64_t width = config.embedding_size;
  return config.tie_word_embeddings
             ? Linear::tied(root / "lm_head", model / config.names.tokens, config.vocab_size, width)
             : Linear(root, {"lm_head", config.vocab_size}, width, false);
}

class PlainDecoder final : public Decoder {
 public:
  PlainDecoder(ActivationShape activations, const PlainDecoderConfig& config, PlainDecoderWeights weights, Linear head)
      : Decoder(std::move(activations), config.positions, std::move(head)),
        post_norm_(config.post_norm),
        embedding_size_(config.embedding_size),
        weights_(std::move(weights)) {
    PAGODA_ASSERT(post_norm_ || weights_.final_norm, "a pre-norm decoder ends with a norm");
  }

 private:
  const float* run_layers(ForwardPass& pass) const override {
    embed(pass);
    float* last = post_norm_ ? run_post_norm(pass) : run_pre_norm(pass);
    if (!weights_.project_out) return last;
    float* const projected = embedding_rows();
    (*weights_.project_out)(pass, last, pass.num_tokens(), projected);
    return projected;
  }

  /// Returns rows [max_tokens, embedding_size]. Use them only while no part runs.
  float* embedding_rows() const { return activations().work(std::array{embedding_size_})[0]; }

  /// Writes the sums of token and position embeddings to the residual stream.
  void embed(ForwardPass& pass) const {
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

  float* run_pre_norm(ForwardPass& pass) const {
    const auto n = pass.num_tokens();
    float* hidden = activations().hidden;
    float* residual = activations().residual;
    for (const auto& layer : weights_.layers) {
      layer.attention_norm(pass, residual, n, hidden);
      layer.attention(pass, activations(), positions(), hidden, residual, Accumulate::yes);
      layer.mlp_norm(pass, residual, n, hidden);
      layer.mlp->run(pass, activations(), hidden, residual, Accumulate::yes);
    }
    (*weights_.final_norm)(pass, residual, n, hidden);
    return hidden;
  }

  float* run_post_norm(ForwardPass& pass) const {
    const auto n = pass.num_tokens();
    float* hidden = activations().hidden;
    float* residual = activations().residual;
    for (const auto& layer : weights_.layers) {
      layer.attention(pass, activations(), positions(), residual, hidden, Accumulate::no);
      layer.attention_norm.add_and_norm(pass, hidden, residual, n, residual);
      layer.mlp->run(pass, activations(), residual, hidden, Accumulate::no);
      layer.mlp_norm.add_and_norm(pass, hidden, residual, n, residual);
    }
    if (weights_.final_norm) (*weights_.final_norm)(pass, residual, n, residual);
    return residual;
  }

  bool post_norm_;
  std::int64_t embedding_size_;
  PlainDecoderWeights weights_;
};

Result<std::unique_ptr<Model>> build(const PlainDecoderConfig& config, const weights::WeightSource& source) {
  Status status;
  const WeightLoader root(source, status);
  const auto& [name, bare_name] = config.names.models;
  const bool is_bare = !root.contains(std::string(name) + "." + config.names.tokens + ".weight");
  const auto model = !is_bare ? root / name : *bare_name == '\0' ? root : root / bare_name;
  auto weights = load(model, config);
  auto head = load_head(root, model, config);
  if (!status) return fail(std::move(status.error()));
  auto activations = activation_shape(config, weights.layers);
  activations.work_widths.push_back({config.embedding_size});
  return std::make_unique<PlainDecoder>(std::move(activations), config, std::move(weights), std::move(head));
}

}  // namespace

ModelSpec spec_of(const PlainDecoderConfig& config) {
  ModelSpec spec = spec_of_decoder(config);
  spec.build = [config](const weights::WeightSource& source) { return build(config, source); };
  return spec;
}

void set_heads(ConfigSource& config, PlainDecoderConfig& decoder, std::int64_t num_heads, const char* hidden_key,
               const char* heads_key) {
  decoder.positions.kind = PositionKind::learned;
  decoder.attention = {.num_heads = num_heads, .num_kv_heads = num_heads, .head_dim = decoder.hidden_size / num_heads};
  if (decoder.hidden_size % num_heads != 0) {
    config.reject(hidden_key, std::to_string(decoder.hidden_size) + " is not a multiple of " + heads_key + " " +
                                  std::to_string(num_heads));
  }
}

}  // namespace pagoda::models
