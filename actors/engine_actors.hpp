#pragma once

/// One spawn function per actor of the engine. Each actor is a thin file: it turns messages into calls on the plain
/// classes of engine/ and their effects into messages. See docs/architecture.md for the flow.

#include <functional>
#include <memory>
#include <string>

#include "actors/interfaces.hpp"
#include "engine/execution/kv_memory.hpp"
#include "engine/execution/model_runner.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/output/output_core.hpp"
#include "engine/routing/router_core.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/trace/step_trace.hpp"

namespace pagoda::actors {

/// Every spawn function of an actor that takes part in steps has a `trace`, which may be null.

/// A worker's parts: made anew for each life of the worker.
struct WorkerParts {
  std::shared_ptr<execution::ModelRunner> runner;
  std::shared_ptr<kernels::Stream> stream;
};
using WorkerFactory = std::function<Result<WorkerParts>()>;

RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, SchedulerActor scheduler,
                                        OutputProcessorActor outputs, trace::SharedTrace trace);

TokenizerActor spawn_tokenizer(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer);

SchedulerActor spawn_scheduler(caf::actor_system& system, scheduling::SchedulerConfig config,
                               BlockManagerActor block_manager, WorkerActor worker, OutputProcessorActor outputs,
                               trace::SharedTrace trace);

BlockManagerActor spawn_block_manager(caf::actor_system& system, memory::BlockSpaceConfig config,
                                      CacheEngineActor cache_engine, trace::SharedTrace trace);

CacheEngineActor spawn_cache_engine(caf::actor_system& system, std::shared_ptr<execution::KvMemory> memory,
                                    std::shared_ptr<kernels::Stream> stream, trace::SharedTrace trace);

/// `results`: where StepResult goes; told later by ConnectScheduler because scheduler and worker know each other.
WorkerActor spawn_worker(caf::actor_system& system, WorkerParts parts, CacheEngineActor cache_engine,
                         trace::SharedTrace trace);

OutputProcessorActor spawn_output_processor(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                            trace::SharedTrace trace);

/// Watches the others: a dead worker is replaced and its groups recomputed; when any other dies, or the supervisor is
/// told to exit, all of them end.
struct SupervisedActors {
  RequestRouterActor router;
  TokenizerActor tokenizer;
  SchedulerActor scheduler;
  BlockManagerActor block_manager;
  CacheEngineActor cache_engine;
  WorkerActor worker;
  OutputProcessorActor outputs;
};
caf::actor spawn_supervisor(caf::actor_system& system, SupervisedActors actors, WorkerFactory make_worker,
                            trace::SharedTrace trace);

}  // namespace pagoda::actors
