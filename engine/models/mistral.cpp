#include "engine/models/gated_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

/// Mistral 7B (Jiang et al. 2023): Llama's decoder with a sliding window in every layer.
Result<std::unique_ptr<Model>> create_mistral(const ModelParts& parts) {
  return create_gated_decoder(parts, {});
}

}  // namespace pagoda::models
