#include <array>

#include "engine/models/families.hpp"
#include "engine/models/gemma_decoder.hpp"
#include "engine/models/rope_config.hpp"

namespace pagoda::models {
namespace {

constexpr double kFullTheta = 1e6;
constexpr double kWindowTheta = 1e4;
constexpr std::array kGgufKeysOfGemma3{
    GgufKey{"rope.freq_base_swa", "rope_local_base_freq", true},
    GgufKey{"final_logit_softcapping", "final_logit_softcapping", true},
};

/// Sets two position tables: one for the layers without a window, one for the others. The newer form of the config has
/// the object rope_parameters with an object for each kind of layer. The older form has rope_theta and rope_scaling for
/// the layers without a window, and rope_local_base_freq for the others.
void read_positions(ConfigSource& config, DecoderConfig& decoder) {
  constexpr const char* kParameters = "rope_parameters";
  RopeKeys keys{.head_dim = decoder.attention.head_dim,
                .max_position_embeddings = decoder.max_position_embeddings,
                .default_theta = kFullTheta};
  layers::RotaryShape full{
      .rotary_dim = keys.head_dim, .theta = config.number("rope_theta", 0.0, kFullTheta), .scaling = {}};
  layers::RotaryShape windowed{
      .rotary_dim = keys.head_dim, .theta = config.number("rope_local_base_freq", 0.0, kWindowTheta), .scaling = {}};
  if (config.has(kParameters)) {
    if (config.has("rope_scaling")) {
      config.reject("rope_scaling", "is not supported beside rope_parameters", ErrorCode::unsupported);
    }
    config.object(kParameters, [&](ConfigSource& parameters) {
      const auto read = [&](const char* key, layers::RotaryShape& shape) {
        if (!parameters.has(key)) return;
        parameters.object(key, [&](ConfigSource& rope) { shape = read_rope_parameters(rope, keys, shape); });
      };
      read("full_attention", full);
      read("sliding_attention", windowed);
    });
  } else {
    full = read_rope(config, keys);
  }
  decoder.positions = {{.rotary = full}, {.rotary = windowed}};
  for (LayerShape& layer : decoder.layer_shapes) layer.position_table = layer.window > 0 ? 1 : 0;
}

GemmaConfig read_gemma3(ConfigSource& config, const DefaultSizes& sizes) {
  GemmaConfig gemma = read_gemma(
      config,
      {.default_theta = kFullTheta, .full_interval = 6, .full_interval_key = "sliding_window_pattern", .sizes = sizes});
  read_positions(config, gemma.decoder);
  gemma.head_norms = true;
  if (gemma.decoder.attention.softcap != 0.0) {
    config.reject("attn_logit_softcapping", "is not supported: transformers ignores it", ErrorCode::unsupported);
  }
  return gemma;
}

}  // namespace

/// Gemma 3 (Kamath et al. 2025), texts only: Gemma 2 without softcaps on scores, with an RMSNorm over the queries and
/// keys of each head, a window in five of six layers, and another theta in the layers with a window.
ModelSpec describe_gemma3(ConfigSource& config) {
  return gemma_decoder(read_gemma3(config, {}));
}

/// The text part of a Gemma 3 that also reads images. Published configs leave out sizes that have a default.
ModelSpec describe_gemma3_with_images(ConfigSource& config) {
  constexpr DefaultSizes kSizes{.vocab_size = 262208, .max_positions = 131072, .num_heads = 8, .num_kv_heads = 4};
  GemmaConfig gemma;
  config.object("text_config", [&](ConfigSource& text) { gemma = read_gemma3(text, kSizes); });
  gemma.decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", gemma.decoder.tie_word_embeddings);
  return gemma_decoder(gemma);
}

constexpr GgufArchitecture kGemma3Gguf{.name = "gemma3",
                                       .hugging_face = {"Gemma3ForCausalLM", "gemma3_text"},
                                       .own_keys = kGgufKeysOfGemma3,
                                       .own_layers = kGemmaGgufLayers,
                                       .activation = "gelu_pytorch_tanh",
                                       .activation_key = "hidden_activation",
                                       .window = GgufWindow::optional,
                                       .windows_by_layer = true,
                                       .norms_include_one = true,
                                       .layers_scaled_by_width = 62};

}  // namespace pagoda::models
