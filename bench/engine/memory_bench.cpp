#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kNumRunning = 256;
constexpr std::int32_t kNumSteps = 512;

SharedTokens some_tokens(std::int32_t length, TokenId first) {
  auto tokens = std::make_shared<TokenIds>(static_cast<std::size_t>(length));
  std::iota(tokens->begin(), tokens->end(), first);
  return tokens;
}

AdmissionCandidate waiting_group(RequestId id, const SharedTokens& tokens) {
  AdmissionCandidate candidate;
  candidate.group = id;
  candidate.sequence = id;
  candidate.tokens = tokens;
  return candidate;
}

MemoryRequest next_step(StepId step) {
  MemoryRequest request;
  request.step = step;
  request.last_completed_step = step - 1;
  request.token_budget = 1 << 30;
  return request;
}

/// 256 running sequences that decode one token a step, in a pool without room for more.
class DecodeLoad {
 public:
  DecodeLoad(std::int32_t context, bool prefix_caching, bool collects_events = false)
      : computed_(context),
        manager_({.layout = KvLayout::uniform(kBlockSize),
                  .num_device_blocks = kNumRunning * ((context + kNumSteps) / kBlockSize + 2),
                  .enable_prefix_caching = prefix_caching}) {
    if (collects_events) manager_.collect_events();
    MemoryRequest request = next_step(++step_);
    for (SequenceId id = 1; id <= kNumRunning; ++id)
      request.waiting.push_back(waiting_group(id, some_tokens(context, static_cast<TokenId>(id))));
    benchmark::DoNotOptimize(manager_.plan(request));
    benchmark::DoNotOptimize(manager_.plan(decode_step()));  // caches the prompts' blocks
  }

  MemoryRequest decode_step() {
    MemoryRequest request = next_step(++step_);
    for (SequenceId id = 1; id <= kNumRunning; ++id) {
      request.sampled.push_back({id, static_cast<TokenId>(step_)});
      request.progress.push_back({id, computed_});
      request.running.push_back({.group = id, .sequences = {static_cast<std::int32_t>(id) - 1, 1}});
      request.needs.push_back({id, computed_, 1, 0});
    }
    ++computed_;
    return request;
  }

  BlockSpaceManager& manager() { return manager_; }

 private:
  StepId step_ = 0;
  std::int32_t computed_;
  BlockSpaceManager manager_;
};

/// Measures one plan of 256 decoding sequences. Arguments: context length, number of waiting groups, whose prompts
/// begin with the context of a running sequence.
void plan_decode(benchmark::State& state, bool prefix_caching, bool collects_events = false) {
  DecodeLoad load(static_cast<std::int32_t>(state.range(0)), prefix_caching, collects_events);
  // The prompt is too large for the free blocks, so each plan examines the head of the queue and leaves it there.
  const SharedTokens prompt = some_tokens(static_cast<std::int32_t>(state.range(0)) + 2 * kNumSteps * kNumRunning, 7);
  for (auto _ : state) {
    MemoryRequest request = load.decode_step();
    for (SequenceId id = 0; id < static_cast<SequenceId>(state.range(1)); ++id)
      request.waiting.push_back(waiting_group(1000 + id, prompt));
    const auto start = std::chrono::steady_clock::now();
    const GrantedStep planned = load.manager().plan(request);
    const KvEventBatch events = load.manager().take_events();
    benchmark::DoNotOptimize(events.events.data());
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    benchmark::DoNotOptimize(planned.grant.running.data());
  }
}

void plan_decode_with_prefix_cache(benchmark::State& state) {
  plan_decode(state, true);
}
void plan_decode_without_prefix_cache(benchmark::State& state) {
  plan_decode(state, false);
}

void plan_decode_with_events(benchmark::State& state) {
  plan_decode(state, true, true);
}

void contexts_and_waiting(benchmark::internal::Benchmark* bench) {
  for (const int context : {128, 512, 2048, 8192}) bench->Args({context, 0});
  for (const int waiting : {1'000, 10'000, 100'000}) bench->Args({512, waiting});
  bench->ArgNames({"context", "waiting"})->UseManualTime()->Iterations(kNumSteps)->Unit(benchmark::kMicrosecond);
}
BENCHMARK(plan_decode_with_prefix_cache)->Apply(contexts_and_waiting);
BENCHMARK(plan_decode_without_prefix_cache)->Apply(contexts_and_waiting);
BENCHMARK(plan_decode_with_events)->Apply(contexts_and_waiting);

/// Uses long contexts, so that the prefix of the head is long: the head waits for memory, and each plan looks its
/// prefix up.
BENCHMARK(plan_decode_with_prefix_cache)
    ->ArgsProduct({{1'024, 8'192, 32'768}, {1}})
    ->ArgNames({"context", "waiting"})
    ->UseManualTime()
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

/// Measures an empty plan whose step counts as failed, as when a request is aborted between a plan and its answer.
/// Argument: context length of 256 sequences, whose blocks are all in the prefix cache.
void plan_behind_failed_step(benchmark::State& state) {
  DecodeLoad load(static_cast<std::int32_t>(state.range(0)), true);
  StepId step = load.decode_step().step;
  for (auto _ : state) {
    MemoryRequest request = next_step(++step);
    request.first_failed_step = step;
    benchmark::DoNotOptimize(load.manager().plan(request));
  }
  state.counters["blocks"] = load.manager().stats().device_blocks_total;
}
BENCHMARK(plan_behind_failed_step)->Arg(128)->Arg(32'768)->ArgName("context")->Unit(benchmark::kMicrosecond);

/// Measures admission and release of a prompt that is cached except for its last token: the cost of a prefix hit in
/// memory management. Argument: prompt tokens.
void admit_cached_prompt(benchmark::State& state) {
  const auto length = static_cast<std::int32_t>(state.range(0));
  BlockSpaceManager manager(
      {.layout = KvLayout::uniform(kBlockSize), .num_device_blocks = 4 * (length / kBlockSize + 1)});
  const SharedTokens prompt = some_tokens(length, 1);
  StepId step = 0;
  SequenceId id = 0;
  std::int32_t cached = 0;
  for (auto _ : state) {
    MemoryRequest request = next_step(++step);
    if (id > 0) request.progress.push_back({id, length});
    if (id > 0) request.releases.push_back(id);
    ++id;
    request.waiting.push_back(waiting_group(id, prompt));
    cached = manager.plan(request).grant.waiting.front().num_cached_tokens;
  }
  state.counters["cached_tokens"] = cached;
}
BENCHMARK(admit_cached_prompt)->Arg(512)->Arg(2048)->Arg(8192)->ArgName("tokens")->Unit(benchmark::kMicrosecond);

/// Measures only the look-up.
void find_cached_prefix(benchmark::State& state) {
  const auto length = static_cast<std::int32_t>(state.range(0));
  SequenceStore store({.layout = KvLayout::uniform(kBlockSize), .num_device_blocks = 2 * (length / kBlockSize + 1)});
  const AdmissionCandidate candidate = waiting_group(1, some_tokens(length, 1));
  CachePlan cache_plan;
  PrefixHit hit;
  store.begin_step(1, 0, &cache_plan);
  store.find_prefix(candidate, hit);
  const SequenceNeed need{1, 0, length, 0};
  store.grow(store.admit(candidate, hit), need);
  store.end_step();
  store.mark_computed({1, length});
  for (auto _ : state) store.find_prefix(candidate, hit);
  state.counters["cached_blocks"] = static_cast<double>(hit.blocks.size());
}
BENCHMARK(find_cached_prefix)->Arg(512)->Arg(2048)->Arg(8192)->ArgName("tokens")->Unit(benchmark::kMicrosecond);

/// Measures what a viewer of the web page costs the block manager, ten times a second. Argument: context length of 256
/// sequences.
void block_map(benchmark::State& state) {
  DecodeLoad load(static_cast<std::int32_t>(state.range(0)), true);
  for (auto _ : state) benchmark::DoNotOptimize(load.manager().block_map());
  state.counters["blocks"] = load.manager().block_map().num_blocks;
}
BENCHMARK(block_map)->Arg(128)->Arg(8192)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagoda::memory
