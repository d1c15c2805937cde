#include "engine/models/decoder_parts.hpp"

#include <array>
#include <utility>

namespace pagoda::models {

using namespace layers;

namespace {

std::array<Projection, 3> qkv_projections(const DecoderConfig& config) {
  const AttentionShape& shape = config.attention;
  return {{{"q_proj", shape.query_width()}, {"k_proj", shape.kv_width()}, {"v_proj", shape.kv_width()}}};
}

std::unique_ptr<Mlp> gated_mlp(const WeightLoader& mlp, const DecoderConfig& config, Linear gate_up, bool bias) {
  return std::make_unique<GatedMlp>(std::move(gate_up), config.activation,
                                    Linear(mlp, {"down_proj", config.hidden_size}, config.intermediate_size, bias));
}

}  // namespace

RmsNorm load_norm(const WeightLoader& module, const DecoderConfig& config, float weight_offset) {
  return {module, config.hidden_size, config.norm_eps, weight_offset};
}

QkvProjection load_qkv(const WeightLoader& attention, const DecoderConfig& config, bool bias) {
  return {.parts = {Linear(attention, qkv_projections(config), config.hidden_size, bias)}};
}

QkvProjection load_qkv_with_norms(const WeightLoader& attention, const DecoderConfig& config, bool bias,
                                  float weight_offset) {
  const std::int64_t head_dim = config.attention.head_dim;
  QkvProjection qkv;
  for (const Projection& part : qkv_projections(config)) {
    qkv.parts.emplace_back(attention, part, config.hidden_size, bias);
  }
  qkv.head_norms = HeadNorms{.query = {attention / "q_norm", head_dim, config.norm_eps, weight_offset},
                             .key = {attention / "k_norm", head_dim, config.norm_eps, weight_offset}};
  return qkv;
}

QkvProjection load_packed_qkv(const WeightLoader& attention, const char* name, const DecoderConfig& config) {
  const AttentionShape& shape = config.attention;
  return {.parts = {Linear(attention, {name, shape.query_width() + 2 * shape.kv_width()}, config.hidden_size, false)}};
}

Linear load_attention_output(const WeightLoader& attention, const DecoderConfig& config, bool bias) {
  return {attention, {"o_proj", config.hidden_size}, config.attention.query_width(), bias};
}

std::unique_ptr<Mlp> load_gated_mlp(const WeightLoader& mlp, const DecoderConfig& config, bool bias) {
  const std::int64_t width = config.intermediate_size;
  const std::array<Projection, 2> gate_up{{{"gate_proj", width}, {"up_proj", width}}};
  return gated_mlp(mlp, config, Linear(mlp, gate_up, config.hidden_size, bias), bias);
}

std::unique_ptr<Mlp> load_packed_gated_mlp(const WeightLoader& mlp, const DecoderConfig& config) {
  Linear gate_up(mlp, {"gate_up_proj", 2 * config.intermediate_size}, config.hidden_size, false);
  return gated_mlp(mlp, config, std::move(gate_up), false);
}

Embedding load_embedding(const WeightLoader& module, const DecoderConfig& config, std::int64_t width, float factor) {
  module.modules()->set_embedding_width(width);
  if (!config.place.is_in_first_stage()) return {};
  return {module, config.vocab_part(), width, factor};
}

Linear load_head(const WeightLoader& root, const DecoderConfig& config) {
  return load_head(root, root / "model" / "embed_tokens", config, config.hidden_size);
}

Linear load_head(const WeightLoader& root, const WeightLoader& embedding, const DecoderConfig& config,
                 std::int64_t width) {
  if (!config.place.is_in_last_stage()) return {};
  if (!config.tie_word_embeddings)
    return {root, {"lm_head", config.vocab_part().num_rows}, width, false, AdapterModule::Kind::head};
  return Linear::tied(root / "lm_head", embedding, config.vocab_part().num_rows, width);
}

void run_pre_norm(ForwardPass& pass, const Activations& activations, std::span<const PositionTables> positions,
                  std::span<const LayerNormLayer> all_layers) {
  const auto n = pass.num_tokens();
  float* hidden = activations.hidden;
  float* residual = activations.residual;
  for (std::int64_t index = 0; const auto& layer : all_layers) {
    pass.show_residual(index++, residual);
    layer.attention_norm(pass, residual, n, hidden);
    layer.attention(pass, activations, positions, hidden, residual, Accumulate::yes);
    layer.mlp_norm(pass, residual, n, hidden);
    layer.mlp->run(pass, activations, hidden, residual, Accumulate::yes);
  }
}

}  // namespace pagoda::models
