#pragma once

/// One spawn function per actor of the engine. Each actor is a thin file: it turns messages into calls on the plain
/// classes of engine/ and their effects into messages. See docs/architecture.md for the flow.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "engine/execution/kv_memory.hpp"
#include "engine/execution/step_runner.hpp"
#include "engine/grammar/grammar_cache.hpp"
#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/output/output_core.hpp"
#include "engine/routing/router_core.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/trace/tracer.hpp"

namespace pagoda::actors {

/// What watches the steps of a replica. Each may be null.
struct Instruments {
  trace::SharedTracer trace;
  journal::SharedJournal journal;
};

/// A worker's parts: made anew for each life of it.
struct WorkerParts {
  std::shared_ptr<execution::StepRunner> runner;
  std::shared_ptr<kernels::Stream> stream;
};

/// A cache engine's. The memory outlives it, the stream does not.
struct CacheParts {
  std::shared_ptr<execution::KvMemory> memory;
  std::shared_ptr<kernels::Stream> stream;
};

/// A device in a process of its own, whose model is loaded.
struct DeviceProcess {
  DeviceProcessActor actor;
  std::int64_t pid = 0;
  int num_failed_starts = 0;  ///< processes before it that ended while they loaded
  bool memory_lost = true;    ///< its KV memory holds nothing, though another process had some
};

/// No cache plan up to the one that it tells is left to do, also if its cache engine has died. Any thread.
using PlansDone = std::function<StepId()>;

/// Makes the parts of one device's actors, at the start and when one of them has ended. Called on any thread.
struct DeviceFactory {
  std::function<Result<WorkerParts>()> make_worker;
  std::function<Result<CacheParts>()> make_cache_engine;
  /// Set: in place of the others, and the actors live in the process that this starts, over the KV memory of the one
  /// before it where that has outlived it and is not lost. Blocks while it loads.
  std::function<Result<DeviceProcess>(caf::actor_system&, bool memory_lost)> start_process = nullptr;
  /// Set with it: ends one that blocks, with an error, and lets no other begin.
  std::function<void()> give_up = nullptr;
  /// Set where KV memory may outlive its process.
  PlansDone plans_done = nullptr;
};

/// The actors of a group of devices, and the process ids of those that live in processes of their own.
struct SpawnedDevices {
  DeviceGroup actors;
  std::vector<std::int64_t> pids;
  int num_failed_starts = 0;
  bool memory_lost = false;
};
/// By rank. Those that were spawned are ended when another cannot be.
Result<SpawnedDevices> spawn_devices(caf::actor_system& system, const std::vector<DeviceFactory>& factories,
                                     const Instruments& instruments);

/// Who compiles grammars, and those that were compiled last.
struct Grammars {
  GrammarCompilerActor compiler;
  std::shared_ptr<grammar::GrammarCache> cache;
};

/// `schedulers`: by replica, as many as limits.num_replicas.
RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, Grammars grammars,
                                        std::vector<SchedulerActor> schedulers, OutputProcessorActor outputs,
                                        Instruments instruments);

TokenizerActor spawn_tokenizer(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer);

Grammars spawn_grammar_compiler(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                grammar::Compiler::Config config);

SchedulerActor spawn_scheduler(caf::actor_system& system, scheduling::SchedulerConfig config,
                               BlockManagerActor block_manager, std::vector<WorkerActor> workers,
                               OutputProcessorActor outputs, Instruments instruments);

/// `plans_done`: null where no KV memory outlives the cache engine that has died.
BlockManagerActor spawn_block_manager(caf::actor_system& system, memory::BlockSpaceConfig config,
                                      std::vector<CacheEngineActor> cache_engines, Instruments instruments,
                                      PlansDone plans_done = nullptr);

CacheEngineActor spawn_cache_engine(caf::actor_system& system, CacheParts parts, Instruments instruments);

WorkerActor spawn_worker(caf::actor_system& system, WorkerParts parts, CacheEngineActor cache_engine,
                         Instruments instruments);

OutputProcessorActor spawn_output_processor(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                            Instruments instruments);

/// Watches a replica: a dead worker is replaced and what ran is recomputed; so is a dead cache engine, which takes all
/// that was kept in its pools with it. When another dies, or there can be no other device, the root supervisor is told
/// why, and this one ends, and with it the replica. `factories`, and `pids` of devices in processes: by rank.
/// `present`: the actors, which the supervisor keeps up to date; others may read it when the supervisor has ended.
ReplicaSupervisorActor spawn_replica_supervisor(caf::actor_system& system, const std::shared_ptr<Replica>& present,
                                                std::vector<DeviceFactory> factories, Instruments instruments,
                                                std::vector<std::int64_t> pids = {});

/// What all replicas share.
struct SharedActors {
  RequestRouterActor router;
  TokenizerActor tokenizer;
  GrammarCompilerActor grammar_compiler;
  OutputProcessorActor outputs;
};

/// Watches the shared actors and the replica: when one of them dies, or the supervisor is told to exit, all end.
caf::actor spawn_supervisor(caf::actor_system& system, const SharedActors& actors,
                            const ReplicaSupervisorActor& replica);

}  // namespace pagoda::actors
