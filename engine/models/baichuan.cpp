#include "engine/models/gated_decoder.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

/// Baichuan 1 and 2 (Yang et al. 2023): Llama's decoder with queries, keys and values from one projection. The 13B
/// models have ALiBi instead of rotary positions, Baichuan 2 a head with rows of length 1. The config reader tells
/// which it is.
Result<std::unique_ptr<Model>> create_baichuan(const ModelParts& parts) {
  return create_gated_decoder(parts, {.packed_qkv = "W_pack"});
}

}  // namespace pagoda::models
