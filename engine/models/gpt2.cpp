#include "engine/models/families.hpp"

namespace pagoda::models {

/// GPT-2 (Radford et al. 2019): LayerNorm before each part, learned positions, GELU. Projections are stored as [in,
/// out]. The first published files leave out the name of the outer module.
PlainDecoderConfig read_gpt2(ConfigSource& config) {
  PlainDecoderConfig decoder;
  decoder.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  decoder.hidden_size = decoder.embedding_size = config.integer("n_embd", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("n_inner", 1, kMaxWidth, 4 * decoder.hidden_size);
  decoder.num_layers = config.integer("n_layer", 1, kMaxLayers);
  const auto num_heads = config.integer("n_head", 1, kMaxHeads);
  decoder.max_position_embeddings = config.integer("n_positions", 1, kMaxPositions);
  decoder.norm_eps = config.number("layer_norm_epsilon", 0.0, 1e-5);
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  decoder.activation = read_activation(config, "activation_function", "gelu_new");
  if (!config.boolean("scale_attn_weights", true) || config.boolean("scale_attn_by_inverse_layer_idx", false)) {
    config.reject("scale_attn_weights", "only the usual scale 1/sqrt(head size) is supported", ErrorCode::unsupported);
  }
  set_heads(config, decoder, num_heads, "n_embd", "n_head");
  decoder.transposed_weights = true;
  decoder.names = {.models = {"transformer", ""},
                   .tokens = "wte",
                   .positions = "wpe",
                   .final_norm = "ln_f",
                   .layers = "h",
                   .attention_norm = "ln_1",
                   .qkv = {"attn.c_attn"},
                   .attention_output = "attn.c_proj",
                   .mlp_norm = "ln_2",
                   .up = "mlp.c_fc",
                   .down = "mlp.c_proj"};
  return decoder;
}

}  // namespace pagoda::models
