#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "engine/layers/attention.hpp"
#include "engine/models/decoder_config.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/gguf_architecture.hpp"
#include "engine/models/model_spec.hpp"

namespace pagoda::models {

/// The keys that differ between Gemma 2 and Gemma 3.
struct GemmaKeys {
  double default_theta = 10000.0;
  std::int64_t full_interval = 0;  ///< every layer of this number has no window, unless layer_types says otherwise
  const char* full_interval_key = nullptr;  ///< key that replaces full_interval; null = none
  double attention_softcap = 0.0;           ///< default of attn_logit_softcapping; 0 = none
  double logit_softcap = 0.0;               ///< default of final_logit_softcapping; 0 = none
  DefaultSizes sizes{};
};

/// What Gemma 2 (Riviere et al. 2024) and Gemma 3 (Kamath et al. 2025) have beyond a DecoderConfig.
struct GemmaConfig {
  DecoderConfig decoder;
  double logit_softcap = 0.0;
  /// Number that a norm adds to its weights. It is 1 for Hugging Face's files. GGUF files store the sums, so it is 0.
  float norm_offset = 1.0F;
  bool attention_bias = false;
  bool head_norms = false;  ///< whether queries and keys of each head are normalised
};

GemmaConfig read_gemma(ConfigSource& config, const GemmaKeys& keys);

/// Returns the spec of a decoder with norms before and after each part (a "sandwich"), and scaled embeddings.
ModelSpec gemma_decoder(const GemmaConfig& config);

/// The norms of a layer in GGUF that have other names than in Llama.
inline constexpr std::array kGemmaGgufLayers{
    GgufModule{"post_attention_layernorm", "post_attention_norm"},
    GgufModule{"pre_feedforward_layernorm", "ffn_norm"},
    GgufModule{"post_feedforward_layernorm", "post_ffw_norm"},
};

}  // namespace pagoda::models
