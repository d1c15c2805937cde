#include "engine/models/gated_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

/// Qwen 2 and 2.5 (Yang et al. 2024): Llama's decoder with biases on the query, key and value projections, and a
/// sliding window in the upper layers where the config asks for it. The config reader sets both.
Result<std::unique_ptr<Model>> create_qwen2(const ModelParts& parts) {
  return create_gated_decoder(parts, {});
}

}  // namespace pagoda::models
