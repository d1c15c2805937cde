#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// Answers each PlanStep with a StepPlan; what must be moved goes straight to the cache engine.
struct BlockManagerState {
  BlockManagerState() {}

  std::unique_ptr<memory::BlockSpaceManager> blocks;
  CacheEngineActor cache_engine;
};

StepPlan plan(BlockManagerActor::stateful_pointer<BlockManagerState> self, const PlanStep& message) {
  auto& state = state_of(self);
  memory::PlannedStep planned = state.blocks->plan(message);
#ifdef PAGODA_CHECK_INVARIANTS
  const auto broken = state.blocks->check_invariants();
  PAGODA_ASSERT(!broken, *broken);
#endif
  if (!planned.cache_plan.empty()) send(self, state.cache_engine, std::move(planned.cache_plan));
  return reply(std::move(planned.plan));
}

BlockManagerActor::behavior_type behavior(BlockManagerActor::stateful_pointer<BlockManagerState> self,
                                          const memory::BlockSpaceConfig& config, const CacheEngineActor& cache_engine) {
  state_of(self).blocks = std::make_unique<memory::BlockSpaceManager>(config);
  state_of(self).cache_engine = cache_engine;
  return {[self](const PlanStep& message) { return plan(self, message); }};
}

}  // namespace

BlockManagerActor spawn_block_manager(caf::actor_system& system, memory::BlockSpaceConfig config,
                                      CacheEngineActor cache_engine) {
  return system.spawn(behavior, config, std::move(cache_engine));
}

}  // namespace pagoda::actors
