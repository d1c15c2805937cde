#include "engine/models/gated_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

/// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024).
Result<std::unique_ptr<Model>> create_llama(const ModelParts& parts) {
  return create_gated_decoder(parts, {});
}

}  // namespace pagoda::models
