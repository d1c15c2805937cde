#include "engine/memory/block_space_manager.hpp"

#include "engine/memory/block_allocation_pass.hpp"
#include "engine/memory/block_map.hpp"
#include "engine/memory/invariants.hpp"
#include "engine/memory/sequence_store.hpp"
#include "engine/view/last.hpp"
#include "kernels/result.hpp"

namespace pagoda::memory {

struct BlockSpaceManager::State {
  explicit State(const BlockSpaceConfig& config) : store(config) {}

  SequenceStore store;
  StepId last_step = 0;
  std::int64_t prefix_cache_queries = 0;
  std::int64_t prefix_cache_hits = 0;
  view::Last<view::Move, view::kMaxMoves> moves;  ///< last moves, for observers; not part of the saved state

  void remember(const CachePlan& plan) {
    const auto add = [&](const std::vector<BlockMove>& all, view::MoveKind kind) {
      for (const BlockMove& move : all) moves.add({plan.step, kind, move.from, move.to});
    };
    add(plan.swap_out, view::MoveKind::swap_out);
    add(plan.swap_in, view::MoveKind::swap_in);
    add(plan.copies, view::MoveKind::copy);
  }
};

BlockSpaceManager::BlockSpaceManager(const BlockSpaceConfig& config) : state_(std::make_unique<State>(config)) {
  PAGODA_ASSERT(config.layout.is_valid(), "KV groups have one block size, and windows where they slide");
  PAGODA_ASSERT(config.num_device_blocks > 0 && config.num_host_blocks >= 0, "counts of blocks are positive");
  PAGODA_ASSERT(config.watermark >= 0.0 && config.watermark < 1.0, "the watermark is a share of the pool");
}

BlockSpaceManager::~BlockSpaceManager() = default;

GrantedStep BlockSpaceManager::plan(const MemoryRequest& request) {
  PAGODA_ASSERT(request.step > state_->last_step, "steps are planned in increasing order");
  PAGODA_ASSERT(request.last_completed_step < request.step, "a step cannot have passed before it is planned");
  state_->last_step = request.step;
  SequenceStore& store = state_->store;
  GrantedStep result;
  result.grant.step = request.step;
  result.cache_plan.step = request.step;

  store.begin_step(request.step, request.last_completed_step, &result.cache_plan);
  if (request.device_memory_lost) store.forget_everything();
  if (request.reset_prefix_cache) store.reset_prefix_cache();
  store.forget_steps_from(request.first_failed_step);
  for (const Fork& fork : request.forks) store.fork(fork);
  for (const SampledToken& sampled : request.sampled) store.append(sampled);
  for (const SequenceProgress& progress : request.progress) store.mark_computed(progress);
  for (const SequenceId sequence : request.releases) store.release(sequence);
  BlockAllocationPass planner(store, request, result);
  planner.run();
  store.end_step();

  state_->prefix_cache_queries += planner.prefix_tokens_asked();
  state_->prefix_cache_hits += planner.prefix_tokens_found();
  result.grant.has_cache_plan = !result.cache_plan.empty();
  result.grant.memory = stats();
  state_->remember(result.cache_plan);
#ifdef PAGODA_CHECK_INVARIANTS
  // A check reads all blocks. With more than kMaxAlways of them it would take most of the time of a run.
  constexpr std::int64_t kMaxAlways = 8192;
  constexpr StepId kInterval = 32;
  if (result.grant.memory.device_blocks_total <= kMaxAlways || request.step % kInterval == 0) {
    const std::optional<std::string> broken = check_invariants();
    PAGODA_ASSERT(!broken, *broken);
  }
#endif
  return result;
}

void BlockSpaceManager::collect_events() {
  PAGODA_ASSERT(state_->last_step == 0, "events are collected from the first plan on");
  state_->store.collect_events();
}

KvEventBatch BlockSpaceManager::take_events() {
  return state_->store.take_events();
}

MemoryStats BlockSpaceManager::stats() const {
  const DeviceBlocks& device = state_->store.device();
  const BlockPool& host = state_->store.host();
  MemoryStats stats;
  stats.device_blocks_total = device.size();
  stats.device_blocks_free = device.num_free();
  stats.device_blocks_cached = device.num_evictable();
  stats.host_blocks_total = host.size();
  stats.host_blocks_free = host.num_free();
  stats.prefix_cache_queries = state_->prefix_cache_queries;
  stats.prefix_cache_hits = state_->prefix_cache_hits;
  stats.allocated_slots = std::int64_t{device.pool().num_owned()} * state_->store.layout().block_size();
  stats.used_slots = device.used_slots();
  return stats;
}

std::int32_t BlockSpaceManager::num_known_tokens(SequenceId sequence) const {
  const auto& sequences = state_->store.sequences();
  const auto found = sequences.find(sequence);
  return found == sequences.end() ? 0 : found->second.num_known_tokens();
}

KvContent BlockSpaceManager::content() const {
  return state_->store.content();
}

view::BlockMap BlockSpaceManager::block_map() const {
  view::BlockMap map = map_blocks(state_->store);
  map.step = state_->last_step;
  map.moves = state_->moves.all();
  return map;
}

void BlockSpaceManager::save(Encoder& out) const {
  out.put(state_->last_step);
  out.put(state_->prefix_cache_queries);
  out.put(state_->prefix_cache_hits);
  state_->store.save(out);
}

bool BlockSpaceManager::load(Decoder& in) {
  PAGODA_ASSERT(state_->last_step == 0, "only a manager that has planned nothing can load a state");
  return in.get(state_->last_step) && in.get(state_->prefix_cache_queries) && in.get(state_->prefix_cache_hits) &&
         state_->store.load(in) && !check_invariants();
}

std::optional<std::string> BlockSpaceManager::check_invariants() const {
  return find_broken_invariant(state_->store);
}

}  // namespace pagoda::memory
