#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

/// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024).
ModelSpec describe_llama(ConfigSource& config) {
  const bool attention_bias = config.boolean("attention_bias", false);
  const bool mlp_bias = config.boolean("mlp_bias", false);
  return llama_decoder(read_decoder(config), llama_weights(attention_bias, mlp_bias));
}

/// A file with a window is a Mistral.
constexpr GgufArchitecture kLlamaGguf{.name = "llama",
                                      .hugging_face = {"LlamaForCausalLM", "llama"},
                                      .hugging_face_with_window = {"MistralForCausalLM", "mistral"},
                                      .window = GgufWindow::optional,
                                      .interleaved_heads = true};

}  // namespace pagoda::models
