#include "engine/models/memory_plan.hpp"

#include <gtest/gtest.h>

namespace pagoda::models {
namespace {

TEST(MemoryPlan, EveryByteOfTheBudgetIsAccountedFor) {
  MemoryRequest request{.weight_bytes = 10000,
                        .batch_bytes = 100,
                        .model = {.activation_bytes = 5000, .position_bytes = 700},
                        .vocab_size = 50,
                        .kv = KvLayout::uniform(4, 0, 2, 192),
                        .limits = {.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 64}};
  const auto without_budget = plan_memory(request);
  EXPECT_EQ(without_budget.kv_bytes_per_token, 96);
  EXPECT_EQ(without_budget.kv_bytes_per_block, 384);
  EXPECT_EQ(without_budget.logit_bytes, 4 * 50 * 4);
  EXPECT_EQ(without_budget.fixed_bytes(), 10000 + 100 + 5000 + 700 + 800);
  EXPECT_EQ(without_budget.num_blocks, 0);

  request.budget_bytes = without_budget.fixed_bytes() + 3 * 384 + 383;
  const auto plan = plan_memory(request);
  EXPECT_EQ(plan.num_blocks, 3);
  EXPECT_EQ(plan.kv_bytes(), 3 * 384);
}

TEST(MemoryPlan, ATokenTakesItsShareOfABlockInEachKvGroup) {
  const KvGroup full{.block_size = 4, .num_layers = 2, .layer_bytes = 192};
  const KvGroup window{.kind = KvKind::window, .block_size = 4, .window = 8, .num_layers = 1, .layer_bytes = 192};
  MemoryRequest request;
  request.kv = {{full, window, window}};
  const auto plan = plan_memory(request);
  EXPECT_EQ(plan.kv_bytes_per_block, 384) << "of the largest group";
  EXPECT_EQ(plan.kv_bytes_per_token, 3 * 96);
}

}  // namespace
}  // namespace pagoda::models
