#pragma once

#include <cstdint>

#include "engine/models/model.hpp"

namespace pagoda::models {

/// What must be known to plan a device's memory; nothing needs to be loaded.
struct MemoryRequest {
  std::int64_t weight_bytes = 0;  ///< as loaded (loaded_weight_bytes)
  std::int64_t batch_bytes = 0;   ///< ModelRunner::batch_bytes
  DType kv_dtype = DType::f32;
  std::int32_t block_size = 16;  ///< token slots per block
  layers::ModelLimits limits;
  std::int64_t budget_bytes = 0;  ///< for everything together
  bool narrow_rows = false;       ///< Ops::takes_narrow_rows
};

/// Where the bytes of a device go.
struct MemoryPlan {
  std::int64_t weight_bytes = 0;
  std::int64_t activation_bytes = 0;    ///< working memory of the largest step
  std::int64_t logit_bytes = 0;         ///< float32 scores of the largest step
  std::int64_t position_bytes = 0;      ///< rotary or ALiBi tables
  std::int64_t batch_bytes = 0;         ///< tokens of all rows, and the inputs of the largest step
  std::int64_t kv_bytes_per_token = 0;  ///< of a block, rounded up
  std::int64_t kv_bytes_per_block = 0;
  std::int64_t num_blocks = 0;       ///< that fit the rest of the budget; 0 when the rest is too small
  std::int64_t longest_context = 0;  ///< tokens that one sequence alone can reach: blocks and positions allow no more

  std::int64_t fixed_bytes() const {
    return weight_bytes + activation_bytes + logit_bytes + position_bytes + batch_bytes;
  }
  std::int64_t kv_bytes() const { return num_blocks * kv_bytes_per_block; }
};

/// `config` must be one that create_model accepts; block_size at least 1.
MemoryPlan plan_memory(const ModelConfig& config, const MemoryRequest& request);

}  // namespace pagoda::models
