#include "engine/models/families.hpp"
#include "engine/models/gemma_decoder.hpp"

namespace pagoda::models {

/// Gemma 2 (Riviere et al. 2024): a window in every second layer, and softcaps on scores and logits.
ModelSpec describe_gemma2(ConfigSource& config) {
  return gemma_decoder(read_gemma(config, {.full_interval = 2, .attention_softcap = 50.0, .logit_softcap = 30.0}));
}

}  // namespace pagoda::models
