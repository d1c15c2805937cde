#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

/// Qwen 3 (Yang et al. 2025): Llama's decoder with an RMSNorm over the queries and keys of each head, a default head
/// size of 128, and windows as in Qwen 2.
ModelSpec describe_qwen3(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config, {.default_head_dim = 128});
  const bool bias = config.boolean("attention_bias", false);
  read_optional_window(config, decoder);
  return llama_decoder(
      decoder, {.layer = [bias](const layers::WeightLoader& layer, const DecoderConfig& sizes, std::int64_t index) {
        return llama_layer(layer, sizes, index, load_qkv_with_norms(layer / "self_attn", sizes, bias),
                           load_gated_mlp(layer / "mlp", sizes), bias);
      }});
}

constexpr GgufArchitecture kQwen3Gguf{.name = "qwen3", .hugging_face = {"Qwen3ForCausalLM", "qwen3"}};

}  // namespace pagoda::models
