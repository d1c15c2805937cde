#include "engine/models/memory_plan.hpp"

#include <algorithm>
#include <limits>

#include "engine/layers/activations.hpp"
#include "engine/layers/positions.hpp"

namespace pagoda::models {

MemoryPlan plan_memory(const ModelConfig& config, const MemoryRequest& request) {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  const auto& limits = request.limits;
  MemoryPlan plan;
  plan.weight_bytes = request.weight_bytes;
  plan.batch_bytes = request.batch_bytes;
  plan.activation_bytes = layers::Activations::bytes(config, limits, request.narrow_rows);
  plan.logit_bytes = limits.max_logit_rows * config.vocab_size * kFloatBytes;
  plan.position_bytes = layers::PositionTables::bytes(config, limits);
  plan.kv_bytes_per_block = kv_bytes_per_block(config, request.kv_dtype, request.block_size);
  plan.kv_bytes_per_token = (plan.kv_bytes_per_block + request.block_size - 1) / request.block_size;

  const std::int64_t rest = std::max<std::int64_t>(0, request.budget_bytes - plan.fixed_bytes());
  constexpr std::int64_t kMaxBlocks = std::numeric_limits<BlockId>::max();
  plan.num_blocks = std::min(rest / plan.kv_bytes_per_block, kMaxBlocks);
  plan.longest_context = std::min(plan.num_blocks * request.block_size, limits.max_model_len);
  return plan;
}

}  // namespace pagoda::models
