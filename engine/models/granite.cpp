#include <array>

#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {
namespace {

/// llama.cpp refuses files without logit_scale. Without attention.scale it divides scores by the root of head_dim,
/// while transformers leaves them as they are without attention_multiplier.
constexpr std::array kGgufKeysOfGranite{
    GgufKey{"attention.scale", "attention_multiplier", true, 1.0, true},
    GgufKey{"embedding_scale", "embedding_multiplier", true, 1.0},
    GgufKey{"residual_scale", "residual_multiplier", true, 1.0},
    GgufKey{"logit_scale", "logits_scaling", true, 1.0, true},
};

}  // namespace

/// Granite 3 (IBM 2024): Llama's decoder with factors of the embedding, of scores, of the rows that attention and MLPs
/// add to the residual stream, and of logits (which are divided by theirs). transformers, modeling_granite.py.
///
/// The residual stream is kept divided by its factor f, so that rows are added as they are. A norm of x / f with eps /
/// f^2 is the norm of x with eps.
ModelSpec describe_granite(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config);
  // Quotients of smaller factors would not fit floats.
  constexpr double kAbove = 1e-6;
  decoder.attention.scale = config.number("attention_multiplier", kAbove, 1.0);
  const double residual_factor = config.number("residual_multiplier", kAbove, 1.0);
  const LlamaFactors factors{.embedding = config.number("embedding_multiplier", kAbove, 1.0) / residual_factor,
                             .logits = 1.0 / config.number("logits_scaling", kAbove, 1.0)};
  const bool attention_bias = config.boolean("attention_bias", false);
  const bool mlp_bias = config.boolean("mlp_bias", false);
  DecoderConfig divided = decoder;
  divided.norm_eps /= residual_factor * residual_factor;
  ModelSpec spec = llama_decoder(divided, llama_weights(attention_bias, mlp_bias), factors);
  spec.decoder = decoder;
  return spec;
}

constexpr GgufArchitecture kGraniteGguf{.name = "granite",
                                        .hugging_face = {"GraniteForCausalLM", "granite"},
                                        .own_keys = kGgufKeysOfGranite,
                                        .interleaved_heads = true,
                                        .finetuned_means_rotary = true};

}  // namespace pagoda::models
