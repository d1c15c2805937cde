#include "engine/models/families.hpp"

namespace pagoda::models {

/// OPT (Zhang et al. 2022): LayerNorm before each part (350m: after it, with an embedding of another width), learned
/// positions, ReLU.
PlainDecoderConfig read_opt(ConfigSource& config) {
  PlainDecoderConfig decoder;
  decoder.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  decoder.hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("ffn_dim", 1, kMaxWidth);
  decoder.num_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  const auto num_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  decoder.max_position_embeddings = config.integer("max_position_embeddings", 1, kMaxPositions);
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  decoder.activation = read_activation(config, "activation_function", "relu");
  decoder.post_norm = !config.boolean("do_layer_norm_before", true);
  decoder.final_norm = !decoder.post_norm;
  if (!decoder.post_norm && config.boolean("_remove_final_layer_norm", false)) {
    config.reject("_remove_final_layer_norm", "is not supported with do_layer_norm_before", ErrorCode::unsupported);
  }
  decoder.affine_norms = config.boolean("layer_norm_elementwise_affine", true);
  decoder.biases = config.boolean("enable_bias", true);
  set_heads(config, decoder, num_heads, "hidden_size", "num_attention_heads");
  decoder.embedding_size = config.integer("word_embed_proj_dim", 1, decoder.hidden_size, decoder.hidden_size);
  decoder.position_offset = 2;
  decoder.names = {.models = {"model.decoder", "decoder"},
                   .tokens = "embed_tokens",
                   .positions = "embed_positions",
                   .project_in = "project_in",
                   .project_out = "project_out",
                   .final_norm = "final_layer_norm",
                   .layers = "layers",
                   .attention_norm = "self_attn_layer_norm",
                   .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                   .attention_output = "self_attn.out_proj",
                   .mlp_norm = "final_layer_norm",
                   .up = "fc1",
                   .down = "fc2"};
  return decoder;
}

}  // namespace pagoda::models
