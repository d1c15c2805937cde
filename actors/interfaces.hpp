#pragma once

/// Declares all typed actor interfaces, with a one-line contract for each message. (private) marks messages between the
/// engine's own actors. Users send only the other messages, and only to the request router.

#include <memory>
#include <optional>
#include <vector>

#include "actors/messages.hpp"
#include "actors/wire.hpp"

namespace pagoda::actors {

struct ConnectWorker;
struct DeviceStatus;
struct DeviceReplaced;
struct CacheEnginesReplaced;
struct ConnectScheduler;
struct ConnectOutputs;
struct ConnectRoot;
struct GetReplica;
struct Replica;
struct MakeReplica;
struct MadeReplica;
struct RestartedReplica;
struct ConnectLoader;
struct LoaderConnected;
struct OpenOutput;
struct MoveOutput;
struct HandOver;

/// Keeps the actors that all replicas share, and the replicas. Ends all of them when a shared actor has ended, or when
/// no replica is left.
using SupervisorActor = Interface<
    // (private) one of its actors has ended.
    caf::result<void>(ChildGone),
    // (private) supervisor of a replica: the reason why it is about to end.
    caf::result<void>(ReplicaFailed),
    // (private) router: a replica gets no requests any more and ends. Refused if it is the last one.
    caf::result<ReplicaEnded>(EndReplica),
    // (private) router: a replica that has ended starts again. Answered when its actors run and have the adapters.
    caf::result<RestartedReplica>(RestartReplica)>;

/// Makes replicas again that have ended. Runs on a thread of its own, since it loads models.
using ReplicaMakerActor = Interface<
    // (private) root supervisor: loads the devices of a replica and spawns its actors.
    caf::result<MadeReplica>(MakeReplica)>;

/// Keeps a replica: scheduler, block manager and a group of devices. Runs on a thread of its own, since it loads
/// models.
using ReplicaSupervisorActor = Interface<
    // (private) one of its actors has ended.
    caf::result<void>(ChildGone),
    // (private) worker, cache engine: the reason why it is about to end.
    caf::result<void>(DeviceFailed),
    // (private) the pause before new devices is over.
    caf::result<void>(ReplaceDevices),
    // (private) root supervisor, once: the actor that receives ReplicaFailed.
    caf::result<void>(ConnectRoot),
    // Returns its present actors.
    caf::result<Replica>(GetReplica)>;

/// The only actor to which clients send messages.
using RequestRouterActor = Interface<
    // Message 1: validates once, before anything is allocated. Answers with a ticket or a typed error.
    caf::result<SubmitReply>(SubmitRequest),
    // Aborts one live request. found = false when the sink has no live request with this tag.
    caf::result<CancelReply>(CancelRequest),
    // Returns the live requests of all sinks.
    caf::result<RequestList>(ListRequests),
    // Aborts a live request of any sink. found = false when no live request has this id.
    caf::result<CancelReply>(AbortRequest),
    // Makes the prefix cache find none of the blocks that are cached now.
    caf::result<PrefixCacheReset>(ResetPrefixCache),
    // Adds an adapter. Answered when it is loaded.
    caf::result<AdapterReply>(AddAdapter),
    // Removes an adapter. Answered when no request uses it.
    caf::result<AdapterReply>(RemoveAdapter),
    // Returns the adapters that requests may name.
    caf::result<AdapterList>(ListAdapters),
    // Returns a snapshot of the engine's counters.
    caf::result<EngineStats>(GetStats),
    // Returns a snapshot of the counters of all actors. An error when the engine has failed.
    caf::result<metrics::EngineMetrics>(GetMetrics),
    // Returns what the engine is doing now, of bounded size. An error when the engine has failed.
    caf::result<view::EngineView>(GetView),
    // Returns the description of the served model; constant.
    caf::result<ModelInfo>(GetModelInfo),
    // Converts text to ids with the model's tokenizer.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Converts ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest),
    // First step of the shutdown ladder. Answered when no request is live.
    caf::result<Drained>(Drain),
    // Answered as soon as no request is live.
    caf::result<Idle>(AwaitIdle),
    // A replica gets no new requests, and ends when it has none. Answered then, or at once.
    caf::result<ReplicaDrained>(DrainReplica),
    // A request moves to another replica. Answered when it is there.
    caf::result<RequestMigrated>(MigrateRequest),
    // A replica that has ended is started again. Answered when it takes requests, or at once.
    caf::result<ReplicaStarted>(StartReplica),
    // (private) a client has ended: its requests are aborted, and its texts are not tokenized.
    caf::result<void>(SinkGone),
    // (private) the timeout of a drain is over: live requests are aborted.
    caf::result<void>(DrainTimeout),
    // (private) the deadline of a live request may have passed.
    caf::result<void>(DeadlineDue),
    // (private) output processor -> router: the request has ended; its terminal output follows.
    caf::result<void>(RequestClosed),
    // (private) the output processor has ended: requests that have no terminal output yet end here, and later requests
    // are refused.
    caf::result<void>(ChildGone),
    // (private) supervisor, once: the actor that receives EndReplica.
    caf::result<void>(ConnectRoot),
    // (private) supervisor: a replica cannot go on. Its requests go on at another one.
    caf::result<void>(ReplicaDown),
    // (private) supervisor: all other actors end. Live requests and later messages get the error.
    caf::result<void>(EngineFailed)>;

/// Runs the tokenizer on a thread of its own, so that a long prompt delays no step.
using TokenizerActor = Interface<
    // (private) router: the prompt of a request.
    caf::result<TokenizeReply>(EncodePrompt),
    // Converts text to ids.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Converts ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest)>;

/// Compiles grammars on a thread of its own, so that a slow grammar delays no request without a grammar.
using GrammarCompilerActor = Interface<
    // (private) router: the constraint of a request's output.
    caf::result<CompileReply>(CompileGrammar)>;

/// Decides which adapters are loaded, for all replicas.
using AdapterStoreActor = Interface<
    // (private) router: a request needs an adapter. Answered when the adapter is loaded.
    caf::result<AdapterAcquired>(AcquireAdapter),
    // (private) router: takes a question back; idempotent.
    caf::result<void>(WithdrawAdapter),
    // (private) router: a request that held the adapter has ended.
    caf::result<void>(ReleaseAdapter), caf::result<void>(AdapterBroken),
    // Adds an adapter. Answered when it is loaded.
    caf::result<AdapterReply>(AddAdapter),
    // Removes an adapter. Answered when its requests have ended.
    caf::result<AdapterReply>(RemoveAdapter),
    // Returns the adapters that requests may name.
    caf::result<AdapterList>(ListAdapters),
    // (private) root supervisor: a replica has a new scheduler. Answered when it has the adapters that are loaded.
    caf::result<LoaderConnected>(ConnectLoader),
    // (private) router: returns its counters.
    caf::result<metrics::AdapterMetrics>(GetMetrics)>;

/// Receives a device's results: the scheduler, or a proxy that forwards to it.
using StepSinkActor = Interface<
    // Message 8, from a worker, in the order of the steps.
    caf::result<void>(StepResult),
    // (private) cache engine: the duration of the swaps of one plan.
    caf::result<void>(SwapMeasured)>;

/// Keeps a device: the supervisor of the replica, or a proxy that forwards to it.
using DeviceKeeperActor = Interface<
    // (private) worker, cache engine: the reason why it is about to end.
    caf::result<void>(DeviceFailed)>;

/// Owns the waiting, running and swapped queues, budgets and the steps in flight.
using SchedulerActor = Interface<
    // Message 2: an admitted request.
    caf::result<void>(AddGroup),
    // Message 2: ends a request in any state; idempotent.
    caf::result<void>(AbortGroup),
    // (private) router: ends a request whose deadline has passed; idempotent.
    caf::result<void>(ExpireGroup),
    // (private) router: gives a request up that another scheduler continues.
    caf::result<GroupReleased>(ReleaseGroup),
    // (private) router: returns the progress of its requests.
    caf::result<Progress>(GetProgress),
    // (private) adapter store: its devices load an adapter. Answered when all of them have.
    caf::result<AdapterLoaded>(LoadAdapter),
    // (private) adapter store: its devices forget an adapter.
    caf::result<void>(UnloadAdapter),
    // (private) router: the next MemoryRequest, which is sent as soon as possible, empties the prefix cache.
    caf::result<PrefixCacheReset>(ResetPrefixCache),
    // Message 8, from the worker of each rank, in the order of the steps.
    caf::result<void>(StepResult),
    // Message 11: a stop string ended a sequence.
    caf::result<void>(StopHit),
    // (private) cache engine: the duration of the swaps of one plan.
    caf::result<void>(SwapMeasured),
    // (private) its mask threads: answers are ready.
    caf::result<void>(MasksAnswered),
    // (private) itself: a step stops waiting for masks and runs without those that are not ready.
    caf::result<void>(MasksDue),
    // (private) supervisor: workers without rows have replaced dead ones.
    caf::result<void>(DeviceReplaced),
    // (private) supervisor: the state of the devices, which the stats show from now on.
    caf::result<void>(DeviceStatus),
    // Returns a snapshot of the counters.
    caf::result<EngineStats>(GetStats),
    // (private) router: returns the counters and the scheduler's metrics.
    caf::result<metrics::SchedulerMetrics>(GetMetrics),
    // (private) root supervisor: ends. What it has counted then is final.
    caf::result<metrics::SchedulerMetrics>(EndScheduler),
    // (private) router: returns the state of its requests, and the block map of its block manager.
    caf::result<view::ReplicaView>(GetView)>;

/// Owns every block id, reference count, block table, prefix-cache entry and swap mapping.
using BlockManagerActor = Interface<
    // Message 3, answered with message 5. Message 4 goes to the cache engines before the answer.
    caf::result<MemoryGrant>(MemoryRequest),
    // (private) supervisor: cache engines have replaced dead ones. Sends them the unfinished plans of the dead ones.
    // The scheduler gets DeviceReplaced after this message, so a plan with device_memory_lost comes later.
    caf::result<void>(CacheEnginesReplaced),
    // (private) scheduler: returns the block map, with the owners of each block.
    caf::result<view::BlockMap>(GetView)>;

/// Owns the KV memory of one device and moves blocks on its own stream.
using CacheEngineActor = Interface<
    // Message 4: executed in stream order, after the steps that the plan names.
    caf::result<void>(CachePlan),
    // (private) worker: the event at which a step ends on the compute stream.
    caf::result<void>(StepEnqueued),
    // (private) a worker, before its first step: it takes part from now on. Answered with CacheConnected.
    caf::result<void>(ConnectCache),
    // (private) supervisor: the worker of the same device, and the destination of measurements.
    caf::result<void>(ConnectWorker),
    // (private) its own stream: the stream has failed.
    caf::result<void>(DeviceFailed)>;

/// Owns the compute stream, the weights and the batch rows of one device.
using WorkerActor = Interface<
    // Message 6: enqueues the step. The answer (message 8) comes from a completion callback.
    caf::result<void>(ExecuteStep),
    // Follows message 6 of a step that waits for masks: the step samples.
    caf::result<void>(StepMasks),
    // Message 7: the plan of a step is enqueued. The compute stream waits for its event.
    caf::result<void>(CacheReady),
    // (private) cache engine: the answer to ConnectCache.
    caf::result<void>(CacheConnected),
    // (private) supervisor, once: the destination of results, and the rank that they have.
    caf::result<void>(ConnectScheduler),
    // (private) scheduler: an adapter is loaded before a step needs it.
    caf::result<AdapterLoaded>(LoadAdapter),
    // (private) scheduler: an adapter is not needed any more.
    caf::result<void>(UnloadAdapter),
    // (private) its own stream: the stream has failed.
    caf::result<void>(DeviceFailed)>;

/// Loads adapters before steps need them. The scheduler of a replica is one, for all of its devices. Each worker has
/// one that runs on a thread of its own.
using AdapterLoaderActor = Interface<
    // (private) adapter store, scheduler, worker: an adapter that rows of later steps may have.
    caf::result<AdapterLoaded>(LoadAdapter),
    // (private) adapter store, scheduler, worker: an adapter that no later row has.
    caf::result<void>(UnloadAdapter)>;

/// Represents the worker and the cache engine of a separate process: it forwards what is sent to either of them. Both
/// are one actor, so that a cache plan that was sent before a step arrives before it.
using DeviceProcessActor = Interface<
    // Messages of WorkerActor. Steps, cache plans and adapters go to the process. The other messages are sent only
    // inside the process.
    caf::result<void>(ExecuteStep), caf::result<void>(StepMasks), caf::result<void>(CacheReady),
    caf::result<void>(CacheConnected), caf::result<void>(ConnectScheduler), caf::result<AdapterLoaded>(LoadAdapter),
    caf::result<void>(UnloadAdapter),
    // (private) the process has loaded an adapter, or cannot load it.
    caf::result<void>(AdapterLoaded),
    // Messages of CacheEngineActor.
    caf::result<void>(CachePlan), caf::result<void>(StepEnqueued), caf::result<void>(ConnectCache),
    caf::result<void>(ConnectWorker),
    // (private) of both: the process has ended, or must end.
    caf::result<void>(DeviceFailed)>;

/// Owns incremental detokenizers, stop matchers and the handle of each sink.
using OutputProcessorActor = Interface<
    // (private) router: a request and its sink, before its first output.
    caf::result<void>(OpenOutput),
    // (private) router: another scheduler runs the request from now on.
    caf::result<void>(MoveOutput),
    // (private) router: a scheduler is down. Answered with its requests; its later outputs are ignored. Or it has given
    // one request up, which is answered alone.
    caf::result<HandedOver>(HandOver),
    // Message 9. Causes message 10 to the sinks and message 11 to the scheduler.
    caf::result<void>(StepOutputs),
    // (private) supervisor, once: the destination of RequestClosed.
    caf::result<void>(ConnectOutputs),
    // (private) router: answered after the outputs of all closed requests were sent.
    caf::result<OutputsFlushed>(FlushOutputs),
    // (private) router: stops recording, so that the journal keeps the requests in their present state.
    caf::result<void>(StopRecording),
    // (private) router: returns its counters.
    caf::result<metrics::RequestMetrics>(GetMetrics),
    // (private) router: returns facts about requests.
    caf::result<view::RequestFacts>(GetRequestFacts),
    // (private) router: every live request ends with the error, then this actor ends.
    caf::result<void>(EngineFailed)>;

struct OpenOutput {
  SharedSpec spec;
  SinkActor sink;
  SchedulerActor scheduler;  ///< the scheduler that runs the request
};
struct MoveOutput {
  RequestId request = 0;
  SchedulerActor scheduler;
};
struct HandOver {
  SchedulerActor scheduler;
  std::optional<RequestId> request = std::nullopt;  ///< absent: all of the scheduler, which is down
};
struct ConnectWorker {
  WorkerActor worker;
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
};
struct DeviceReplaced {
  std::vector<WorkerActor> workers;  ///< by rank
  bool memory_lost = false;          ///< whether the cache engines' memory is new as well
  /// Whether the running requests may be the cause. False when a process was killed from outside.
  bool crashed = true;
};
/// State of the devices of a replica, for its stats.
struct DeviceStatus {
  std::int64_t deaths = 0;  ///< number of processes that ended by themselves, or were killed from outside
  std::int64_t hangs = 0;   ///< number of processes that the engine killed because they made no progress
  /// Process ids of the live devices, by rank. Empty when devices live in this process.
  std::vector<std::int64_t> pids;
  std::string health = "ok";  ///< "ok", or the reason why no step runs until devices are replaced
};
struct CacheEnginesReplaced {
  std::vector<CacheEngineActor> cache_engines;  ///< by rank
  /// Whether their memory is empty. If false, unfinished plans of the dead cache engines must still be executed.
  bool memory_lost = true;
};
struct ConnectScheduler {
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
  RankId rank = 0;  ///< rank of the device, which its results have
};
struct ConnectOutputs {
  RequestRouterActor router;
};
struct ConnectRoot {
  SupervisorActor root;
};
/// Actors of a group of devices, by rank.
struct DeviceGroup {
  std::vector<WorkerActor> workers;
  std::vector<CacheEngineActor> cache_engines;
};
/// A scheduler, its block manager and its devices: they plan and run steps.
struct Replica {
  SchedulerActor scheduler;
  BlockManagerActor block_manager;
  DeviceGroup devices;
};
struct GetReplica {};

/// The actors of a replica that runs.
struct RunningReplica {
  Replica actors;  ///< at the start; the supervisor has the present ones
  /// The present actors. Do not read them before the supervisor has ended.
  std::shared_ptr<Replica> present;
  ReplicaSupervisorActor supervisor;
};

struct MakeReplica {
  ReplicaId replica = 0;
  RunningReplica before;  ///< the replica that has ended; its memory is free when its last actor has ended
};
struct MadeReplica {
  Result<RunningReplica> made;
};
struct RestartedReplica {
  Result<SchedulerActor> scheduler;
};

struct ConnectLoader {
  ReplicaId replica = 0;
  AdapterLoaderActor loader;
};
struct LoaderConnected {};

}  // namespace pagoda::actors

/// Lists every message type once. PAGODA_VALUE: plain values of engine/step that may cross to another process, by their
/// visit_fields (wire.hpp). PAGODA_LOCAL: stays in this process, because it holds values that cannot leave it: sinks,
/// requests and answers of clients (the router's), addresses, handles (supervisors'), events and streams (a device's).
#define PAGODA_VALUE(type) CAF_ADD_TYPE_ID(pagoda, (type))
#define PAGODA_LOCAL(type) CAF_ADD_TYPE_ID(pagoda, (type)) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
CAF_BEGIN_TYPE_ID_BLOCK(pagoda, caf::first_custom_type_id)
PAGODA_VALUE(pagoda::MemoryRequest)
PAGODA_VALUE(pagoda::MemoryGrant)
PAGODA_VALUE(pagoda::CachePlan)
PAGODA_VALUE(pagoda::ExecuteStep)
PAGODA_VALUE(pagoda::StepMasks)
PAGODA_VALUE(pagoda::StepResult)
PAGODA_VALUE(pagoda::SwapMeasured)
PAGODA_VALUE(pagoda::StepOutputs)
PAGODA_VALUE(pagoda::StopHit)
PAGODA_VALUE(pagoda::actors::AddGroup)
PAGODA_VALUE(pagoda::actors::AbortGroup)
PAGODA_VALUE(pagoda::actors::LoadAdapter)
PAGODA_VALUE(pagoda::actors::AdapterLoaded)
PAGODA_VALUE(pagoda::actors::UnloadAdapter)
PAGODA_VALUE(pagoda::actors::DeviceFailed)
PAGODA_LOCAL(pagoda::actors::ExpireGroup)
PAGODA_LOCAL(pagoda::actors::GetProgress)
PAGODA_LOCAL(pagoda::actors::Progress)
PAGODA_LOCAL(pagoda::OutputBatch)
PAGODA_LOCAL(pagoda::EngineStats)
PAGODA_LOCAL(pagoda::metrics::SchedulerMetrics)
PAGODA_LOCAL(pagoda::metrics::RequestMetrics)
PAGODA_LOCAL(pagoda::metrics::EngineMetrics)
PAGODA_LOCAL(pagoda::metrics::AdapterMetrics)
PAGODA_LOCAL(pagoda::ModelInfo)
PAGODA_LOCAL(pagoda::view::BlockMap)
PAGODA_LOCAL(pagoda::view::ReplicaView)
PAGODA_LOCAL(pagoda::view::RequestFacts)
PAGODA_LOCAL(pagoda::view::EngineView)
PAGODA_LOCAL(pagoda::actors::SubmitRequest)
PAGODA_LOCAL(pagoda::actors::SubmitReply)
PAGODA_LOCAL(pagoda::actors::CancelRequest)
PAGODA_LOCAL(pagoda::actors::CancelReply)
PAGODA_LOCAL(pagoda::actors::ListRequests)
PAGODA_LOCAL(pagoda::actors::RequestList)
PAGODA_LOCAL(pagoda::actors::AbortRequest)
PAGODA_LOCAL(pagoda::actors::ResetPrefixCache)
PAGODA_LOCAL(pagoda::actors::PrefixCacheReset)
PAGODA_LOCAL(pagoda::actors::AddAdapter)
PAGODA_LOCAL(pagoda::actors::RemoveAdapter)
PAGODA_LOCAL(pagoda::actors::AdapterReply)
PAGODA_LOCAL(pagoda::actors::ListAdapters)
PAGODA_LOCAL(pagoda::actors::AdapterList)
PAGODA_LOCAL(pagoda::actors::GetStats)
PAGODA_LOCAL(pagoda::actors::GetMetrics)
PAGODA_LOCAL(pagoda::actors::GetModelInfo)
PAGODA_LOCAL(pagoda::actors::GetView)
PAGODA_LOCAL(pagoda::actors::GetRequestFacts)
PAGODA_LOCAL(pagoda::actors::TokenizeRequest)
PAGODA_LOCAL(pagoda::actors::TokenizeReply)
PAGODA_LOCAL(pagoda::actors::DetokenizeRequest)
PAGODA_LOCAL(pagoda::actors::DetokenizeReply)
PAGODA_LOCAL(pagoda::actors::Drain)
PAGODA_LOCAL(pagoda::actors::Drained)
PAGODA_LOCAL(pagoda::actors::AcquireAdapter)
PAGODA_LOCAL(pagoda::actors::AdapterAcquired)
PAGODA_LOCAL(pagoda::actors::WithdrawAdapter)
PAGODA_LOCAL(pagoda::actors::ReleaseAdapter)
PAGODA_LOCAL(pagoda::actors::AdapterBroken)
PAGODA_LOCAL(pagoda::actors::AwaitIdle)
PAGODA_LOCAL(pagoda::actors::Idle)
PAGODA_LOCAL(pagoda::actors::EncodePrompt)
PAGODA_LOCAL(pagoda::actors::CompileGrammar)
PAGODA_LOCAL(pagoda::actors::CompileReply)
PAGODA_LOCAL(pagoda::actors::SinkGone)
PAGODA_LOCAL(pagoda::actors::DrainTimeout)
PAGODA_LOCAL(pagoda::actors::DeadlineDue)
PAGODA_LOCAL(pagoda::actors::OpenOutput)
PAGODA_LOCAL(pagoda::actors::MoveOutput)
PAGODA_LOCAL(pagoda::actors::HandOver)
PAGODA_LOCAL(pagoda::actors::HandedOver)
PAGODA_LOCAL(pagoda::actors::RequestClosed)
PAGODA_LOCAL(pagoda::actors::FlushOutputs)
PAGODA_LOCAL(pagoda::actors::OutputsFlushed)
PAGODA_LOCAL(pagoda::actors::StopRecording)
PAGODA_LOCAL(pagoda::actors::ConnectOutputs)
PAGODA_LOCAL(pagoda::actors::ConnectRoot)
PAGODA_LOCAL(pagoda::actors::GetReplica)
PAGODA_LOCAL(pagoda::actors::Replica)
PAGODA_LOCAL(pagoda::actors::CacheReady)
PAGODA_LOCAL(pagoda::actors::CacheConnected)
PAGODA_LOCAL(pagoda::actors::ConnectCache)
PAGODA_LOCAL(pagoda::actors::StepEnqueued)
PAGODA_LOCAL(pagoda::actors::ConnectWorker)
PAGODA_LOCAL(pagoda::actors::ConnectScheduler)
PAGODA_LOCAL(pagoda::actors::DeviceReplaced)
PAGODA_LOCAL(pagoda::actors::DeviceStatus)
PAGODA_LOCAL(pagoda::actors::CacheEnginesReplaced)
PAGODA_LOCAL(pagoda::actors::ChildGone)
PAGODA_LOCAL(pagoda::actors::ReplaceDevices)
PAGODA_LOCAL(pagoda::actors::ReplicaFailed)
PAGODA_LOCAL(pagoda::actors::ReplicaDown)
PAGODA_LOCAL(pagoda::actors::EndReplica)
PAGODA_LOCAL(pagoda::actors::EndScheduler)
PAGODA_LOCAL(pagoda::actors::ReplicaEnded)
PAGODA_LOCAL(pagoda::actors::DrainReplica)
PAGODA_LOCAL(pagoda::actors::ReplicaDrained)
PAGODA_LOCAL(pagoda::actors::MigrateRequest)
PAGODA_LOCAL(pagoda::actors::RequestMigrated)
PAGODA_LOCAL(pagoda::actors::ReleaseGroup)
PAGODA_LOCAL(pagoda::actors::GroupReleased)
PAGODA_LOCAL(pagoda::actors::StartReplica)
PAGODA_LOCAL(pagoda::actors::ReplicaStarted)
PAGODA_LOCAL(pagoda::actors::RestartReplica)
PAGODA_LOCAL(pagoda::actors::RestartedReplica)
PAGODA_LOCAL(pagoda::actors::MakeReplica)
PAGODA_LOCAL(pagoda::actors::MadeReplica)
PAGODA_LOCAL(pagoda::actors::ConnectLoader)
PAGODA_LOCAL(pagoda::actors::LoaderConnected)
PAGODA_LOCAL(pagoda::actors::EngineFailed)
PAGODA_LOCAL(pagoda::actors::MasksAnswered)
PAGODA_LOCAL(pagoda::actors::MasksDue)
CAF_END_TYPE_ID_BLOCK(pagoda)
#undef PAGODA_VALUE
#undef PAGODA_LOCAL
