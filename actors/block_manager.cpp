#include <deque>

#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"
#include "engine/journal/recorded_block_manager.hpp"

namespace pagoda::actors {
namespace {

/// Answers each MemoryRequest with a MemoryGrant. Sends block moves straight to the cache engine of every rank.
struct BlockManagerState {
  BlockManagerState() {}
  BlockManagerState(const BlockManagerState&) = delete;
  BlockManagerState& operator=(const BlockManagerState&) = delete;
  ~BlockManagerState() {
    // The replica ends, and its cache with it.
    if (kv_events) kv_events->publish(place.replica, {.events = {memory::BlocksCleared{}}});
  }

  std::unique_ptr<journal::RecordedBlockManager> blocks;
  std::vector<CacheEngineActor> cache_engines;  ///< by rank
  PlansDone plans_done;
  /// Plans that may not be executed yet. They are sent again when a cache engine dies and its memory outlives it.
  std::deque<CachePlan> unfinished;
  trace::SharedTracer trace;
  memory::SharedKvEventSink kv_events;  ///< null: no changes of the prefix cache are collected
  Place place;
};

using Self = BlockManagerActor::stateful_pointer<BlockManagerState>;

void remember(BlockManagerState& state, const CachePlan& plan) {
  const StepId done = state.plans_done();
  while (!state.unfinished.empty() && state.unfinished.front().step <= done) state.unfinished.pop_front();
  state.unfinished.push_back(plan);
}

void on_replaced(Self self, const CacheEnginesReplaced& message) {
  auto& state = state_of(self);
  state.cache_engines = message.cache_engines;
  if (message.memory_lost) state.unfinished.clear();
  for (const CachePlan& plan : state.unfinished) send_to_all(self, state.cache_engines, CachePlan(plan));
}

MemoryGrant plan(Self self, const MemoryRequest& message) {
  auto& state = state_of(self);
  const TraceSpan span(state.trace, trace::Row::block_manager, "plan memory", state.place);
  memory::GrantedStep planned = state.blocks->plan(message);
  span.end({arg("step", message.step), arg("running", message.running.size()), arg("swapped", message.swapped.size()),
            arg("waiting", message.waiting.size()), arg("releases", message.releases.size()),
            arg("blocks_changed", planned.grant.blocks.size())});
  if (state.kv_events) state.kv_events->publish(state.place.replica, state.blocks->take_events());
  if (!planned.cache_plan.empty()) {
    if (state.plans_done) remember(state, planned.cache_plan);
    send_to_all(self, state.cache_engines, std::move(planned.cache_plan));
  }
  return reply(std::move(planned.grant));
}

BlockManagerActor::behavior_type behavior(Self self, const memory::BlockSpaceConfig& config,
                                          const std::vector<CacheEngineActor>& cache_engines,
                                          const Instruments& instruments, const PlansDone& plans_done) {
  state_of(self).blocks =
      std::make_unique<journal::RecordedBlockManager>(config, instruments.journal, instruments.place.replica);
  state_of(self).cache_engines = cache_engines;
  state_of(self).plans_done = plans_done;
  state_of(self).trace = instruments.trace;
  state_of(self).place = instruments.place;
  state_of(self).kv_events = instruments.kv_events;
  if (instruments.kv_events) state_of(self).blocks->collect_events();
  return {
      [self](const MemoryRequest& message) { return plan(self, message); },
      [self](const CacheEnginesReplaced& message) { on_replaced(self, message); },
      [self](const GetView&) { return reply(state_of(self).blocks->core().block_map()); },
  };
}

}  // namespace

BlockManagerActor spawn_block_manager(caf::actor_system& system, memory::BlockSpaceConfig config,
                                      std::vector<CacheEngineActor> cache_engines, Instruments instruments,
                                      PlansDone plans_done) {
  return system.spawn(behavior, std::move(config), std::move(cache_engines), std::move(instruments),
                      std::move(plans_done));
}

}  // namespace pagoda::actors
