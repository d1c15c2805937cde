#include "engine/models/memory_plan.hpp"

#include <algorithm>
#include <limits>

#include "engine/types.hpp"

namespace pagoda::models {

MemoryPlan plan_memory(const MemoryRequest& request) {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t block_size = request.kv.block_size();
  MemoryPlan plan;
  plan.weight_bytes = request.weight_bytes;
  plan.batch_bytes = request.batch_bytes;
  plan.adapter_bytes = request.adapter_bytes;
  plan.activation_bytes = request.model.activation_bytes;
  plan.logit_bytes = request.limits.max_logit_rows * request.vocab_size * kFloatBytes;
  plan.position_bytes = request.model.position_bytes;
  plan.kv_bytes_per_block = request.kv.block_bytes();
  plan.kv_bytes_per_token = (request.kv.num_groups() * plan.kv_bytes_per_block + block_size - 1) / block_size;

  const std::int64_t rest = std::max<std::int64_t>(0, request.budget_bytes - plan.fixed_bytes());
  constexpr std::int64_t kMaxBlocks = std::numeric_limits<BlockId>::max();
  plan.num_blocks = std::min(rest / plan.kv_bytes_per_block, kMaxBlocks);
  return plan;
}

}  // namespace pagoda::models
