#pragma once

/// Declares one spawn function for each actor of the engine. Each actor is a thin file: it turns messages into calls of
/// the plain classes of engine/, and their effects into messages. See docs/architecture.md for the flow.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "engine/adapters/adapter_store_core.hpp"
#include "engine/adapters/adapter_table.hpp"
#include "engine/execution/kv_memory.hpp"
#include "engine/execution/step_runner.hpp"
#include "engine/grammar/grammar_cache.hpp"
#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/kv_events.hpp"
#include "engine/output/output_core.hpp"
#include "engine/routing/router_core.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/trace/tracer.hpp"

namespace pagoda::actors {

/// Observers of the steps of a replica. Each may be null.
struct Instruments {
  trace::SharedTracer trace;
  journal::SharedJournal journal;
  memory::SharedKvEventSink kv_events = nullptr;
  Place place = {};  ///< place of the actor that is observed
};

/// Parts of a worker. Each new worker gets new parts.
struct WorkerParts {
  std::shared_ptr<execution::StepRunner> runner;
  std::shared_ptr<kernels::Stream> stream;
  std::shared_ptr<adapters::AdapterTable> adapters = nullptr;  ///< adapters of the runner; null: rows have none
};

/// Parts of a cache engine. The memory outlives the cache engine, the stream does not.
struct CacheParts {
  std::shared_ptr<execution::KvMemory> memory;
  std::shared_ptr<kernels::Stream> stream;
};

/// A device in a process of its own, with its model loaded.
struct DeviceProcess {
  DeviceProcessActor actor;
  std::int64_t pid = 0;
  int num_failed_starts = 0;  ///< number of processes before this one that ended while they loaded
  /// Whether the KV memory of an earlier process was lost, so that this one starts empty.
  bool memory_lost = true;
};

/// Returns the last step up to which every cache plan has been executed, also when its cache engine has died. Any
/// thread.
using PlansDone = std::function<StepId()>;

/// Makes the parts of the actors of one device, at the start and when one of these actors has ended. Any thread.
struct DeviceFactory {
  std::function<Result<WorkerParts>()> make_worker;
  std::function<Result<CacheParts>()> make_cache_engine;
  /// If set, it is called in place of the other two functions, and the actors live in the process that it starts. The
  /// process uses the KV memory of its predecessor if that memory has outlived it and `memory_lost` is false. Blocks
  /// while the process loads.
  std::function<Result<DeviceProcess>(caf::actor_system&, bool memory_lost)> start_process = nullptr;
  /// Set together with start_process. Ends a call of start_process that blocks, with an error, and prevents further
  /// starts.
  std::function<void()> give_up = nullptr;
  /// Set when KV memory may outlive its process.
  PlansDone plans_done = nullptr;
};

/// Actors of a group of devices, and the process ids of devices that live in processes of their own.
struct SpawnedDevices {
  DeviceGroup actors;
  std::vector<std::int64_t> pids;
  int num_failed_starts = 0;
  bool memory_lost = false;
};
/// Spawns the devices, by rank. `instruments`: those of the replica. If one cannot be spawned, ends those that were
/// spawned before it.
Result<SpawnedDevices> spawn_devices(caf::actor_system& system, const std::vector<DeviceFactory>& factories,
                                     const Instruments& instruments);

/// The actor that compiles grammars, and a cache of recently compiled grammars.
struct Grammars {
  GrammarCompilerActor compiler;
  std::shared_ptr<grammar::GrammarCache> cache;
};

/// Limits of the adapter store.
struct AdapterStoreParts {
  std::size_t max_loaded = 1;    ///< maximum number of loaded adapters
  std::int32_t max_in_step = 1;  ///< maximum number of different adapters in a step, for the metrics
};
/// Spawns the adapter store. `loaders`: the scheduler of each replica.
AdapterStoreActor spawn_adapter_store(caf::actor_system& system, const AdapterStoreParts& parts,
                                      const std::vector<AdapterLoaderActor>& loaders);

/// Spawns the router. `schedulers`: by replica, one for each of limits.num_replicas. `adapters`: null if requests
/// cannot name adapters (AdmissionLimits::has_adapters).
RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, Grammars grammars, AdapterStoreActor adapters,
                                        std::vector<SchedulerActor> schedulers, OutputProcessorActor outputs,
                                        Instruments instruments);

TokenizerActor spawn_tokenizer(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer);

Grammars spawn_grammar_compiler(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                grammar::Compiler::Config config);

SchedulerActor spawn_scheduler(caf::actor_system& system, scheduling::SchedulerConfig config,
                               BlockManagerActor block_manager, std::vector<WorkerActor> workers,
                               OutputProcessorActor outputs, Instruments instruments);

/// Spawns the block manager. `plans_done`: null if no KV memory outlives a cache engine that has died.
BlockManagerActor spawn_block_manager(caf::actor_system& system, memory::BlockSpaceConfig config,
                                      std::vector<CacheEngineActor> cache_engines, Instruments instruments,
                                      PlansDone plans_done = nullptr);

CacheEngineActor spawn_cache_engine(caf::actor_system& system, CacheParts parts, Instruments instruments);

WorkerActor spawn_worker(caf::actor_system& system, WorkerParts parts, CacheEngineActor cache_engine,
                         Instruments instruments);

AdapterLoaderActor spawn_adapter_loader(caf::actor_system& system, std::shared_ptr<adapters::AdapterTable> table);

OutputProcessorActor spawn_output_processor(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                            Instruments instruments);

/// Spawns the actor that watches a replica. It replaces a dead worker, and the running sequences are recomputed; it
/// also replaces a dead cache engine, whose pools are lost. When another actor dies, or a device cannot be replaced, it
/// sends the reason to the root supervisor and ends, and the replica ends with it. `factories`, and `pids` of devices
/// in processes: by rank. `present`: the actors, kept up to date by this supervisor; others may read them only after it
/// has ended. It keeps `factories`, and so the memory of devices that they have, until it ends.
ReplicaSupervisorActor spawn_replica_supervisor(caf::actor_system& system, const std::shared_ptr<Replica>& present,
                                                std::shared_ptr<const std::vector<DeviceFactory>> factories,
                                                Instruments instruments, std::vector<std::int64_t> pids = {});

/// Actors that all replicas share.
struct SharedActors {
  RequestRouterActor router;
  TokenizerActor tokenizer;
  GrammarCompilerActor grammar_compiler;
  AdapterStoreActor adapter_store;  ///< null if requests cannot name adapters
  OutputProcessorActor outputs;
};

/// Loads the devices of a replica that has ended and spawns its actors. Blocks. Any thread.
using MakeReplicaAgain = std::function<Result<RunningReplica>(ReplicaId)>;
/// Spawns the actor that calls `make`, after all actors of the replica have ended. When it ends, the replicas that it
/// has made end.
ReplicaMakerActor spawn_replica_maker(caf::actor_system& system, MakeReplicaAgain make);

/// Spawns the actor that watches the shared actors and the replicas. When a shared actor dies, when no replica is left,
/// or when this actor gets an exit message, all end. `maker`: null if a replica that has ended does not come back.
/// `give_up_starts`: ends the starts of devices that block the supervisor of a replica.
caf::actor spawn_supervisor(caf::actor_system& system, const SharedActors& actors,
                            const std::vector<RunningReplica>& replicas, const ReplicaMakerActor& maker,
                            const std::function<void(ReplicaId)>& give_up_starts);

}  // namespace pagoda::actors
