#pragma once

#include <cstdint>

#include "engine/layers/forward_batch.hpp"
#include "engine/models/model.hpp"
#include "engine/step/kv_layout.hpp"

namespace pagoda::models {

/// The sizes from which a device's memory is planned. They are known without loading anything.
struct MemoryRequest {
  std::int64_t weight_bytes = 0;  ///< as loaded (weights::MeasuredWeights)
  std::int64_t batch_bytes = 0;   ///< ModelRunner::batch_bytes
  ModelMemory model;
  std::int64_t adapter_bytes = 0;  ///< of all adapters that may be loaded (adapters::planned_bytes)
  std::int64_t vocab_size = 0;
  KvLayout kv;
  layers::ModelLimits limits;
  std::int64_t budget_bytes = 0;  ///< limit of everything together
};

/// The use of a device's memory.
struct MemoryPlan {
  std::int64_t weight_bytes = 0;
  std::int64_t activation_bytes = 0;  ///< working memory of the largest step
  std::int64_t logit_bytes = 0;       ///< float32 scores of the largest step
  std::int64_t position_bytes = 0;    ///< rotary or ALiBi tables
  std::int64_t batch_bytes = 0;       ///< tokens of all rows, and the inputs of the largest step
  std::int64_t adapter_bytes = 0;     ///< loaded adapters
  /// Bytes of a token in all KV groups, rounded up. Groups with a window give them back behind the window.
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_bytes_per_block = 0;
  std::int64_t num_blocks = 0;  ///< blocks that fit into the rest of the budget; 0 when the rest is too small

  std::int64_t fixed_bytes() const {
    return weight_bytes + activation_bytes + logit_bytes + position_bytes + batch_bytes + adapter_bytes;
  }
  std::int64_t kv_bytes() const { return num_blocks * kv_bytes_per_block; }
};

MemoryPlan plan_memory(const MemoryRequest& request);

}  // namespace pagoda::models
