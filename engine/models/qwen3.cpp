#include "engine/models/gated_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

/// Qwen 3 (Yang et al. 2025): Llama's decoder with an RMSNorm over the queries and keys of each head.
Result<std::unique_ptr<Model>> create_qwen3(const ModelParts& parts) {
  return create_gated_decoder(parts, {.head_norms = true});
}

}  // namespace pagoda::models
