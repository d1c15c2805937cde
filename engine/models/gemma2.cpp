#include <array>

#include "engine/models/families.hpp"
#include "engine/models/gemma_decoder.hpp"

namespace pagoda::models {
namespace {

constexpr double kScoreSoftcap = 50.0;
constexpr double kLogitSoftcap = 30.0;
constexpr std::array kGgufKeysOfGemma2{
    GgufKey{"attn_logit_softcapping", "attn_logit_softcapping", true, kScoreSoftcap},
    GgufKey{"final_logit_softcapping", "final_logit_softcapping", true, kLogitSoftcap},
};

}  // namespace

/// Gemma 2 (Riviere et al. 2024): a window in every second layer, and softcaps on scores and logits.
ModelSpec describe_gemma2(ConfigSource& config) {
  return gemma_decoder(
      read_gemma(config, {.full_interval = 2, .attention_softcap = kScoreSoftcap, .logit_softcap = kLogitSoftcap}));
}

/// Early files lack attention.sliding_window.
constexpr GgufArchitecture kGemma2Gguf{.name = "gemma2",
                                       .hugging_face = {"Gemma2ForCausalLM", "gemma2"},
                                       .own_keys = kGgufKeysOfGemma2,
                                       .own_layers = kGemmaGgufLayers,
                                       .activation = "gelu_pytorch_tanh",
                                       .activation_key = "hidden_activation",
                                       .window = GgufWindow::usual,
                                       .windows_by_layer = true,
                                       .norms_include_one = true,
                                       .layers_scaled_by_width = 46};

}  // namespace pagoda::models
