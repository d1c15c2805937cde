#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

/// Qwen 2 and 2.5 (Yang et al. 2024): Llama's decoder with biases on the query, key and value projections, and a
/// sliding window in the upper layers where the config asks for it.
ModelSpec describe_qwen2(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config);
  read_optional_window(config, decoder);
  return llama_decoder(decoder,
                       {.layer = [](const layers::WeightLoader& layer, const DecoderConfig& sizes, std::int64_t index) {
                         return llama_layer(layer, sizes, index, load_qkv(layer / "self_attn", sizes, true),
                                            load_gated_mlp(layer / "mlp", sizes));
                       }});
}

constexpr GgufArchitecture kQwen2Gguf{.name = "qwen2", .hugging_face = {"Qwen2ForCausalLM", "qwen2"}};

}  // namespace pagoda::models
