#pragma once

/// All typed actor interfaces, one line of contract per message. (private) marks messages between the engine's own
/// actors; users send only the others, and only to the request router.

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
struct OpenOutput;

/// Keeps the actors that all replicas share, and the replicas, or ends them together.
using SupervisorActor = Interface<
    // (private) one of its actors has ended.
    caf::result<void>(ChildGone),
    // (private) supervisor of a replica: why it is about to end.
    caf::result<void>(ReplicaFailed)>;

/// Keeps a replica: scheduler, block manager and a group of devices. On a thread of its own, since it loads models.
using ReplicaSupervisorActor = Interface<
    // (private) one of its actors has ended.
    caf::result<void>(ChildGone),
    // (private) worker, cache engine: why it is about to end.
    caf::result<void>(DeviceFailed),
    // (private) the pause before new devices is over.
    caf::result<void>(ReplaceDevices),
    // (private) root supervisor, once: who is told when the replica cannot go on.
    caf::result<void>(ConnectRoot),
    // Its actors as they are now.
    caf::result<Replica>(GetReplica)>;

/// Message 1 and its neighbours: the only actor that clients talk to.
using RequestRouterActor = Interface<
    // Message 1: validates once, before anything is allocated; answers with a ticket or a typed error.
    caf::result<SubmitReply>(SubmitRequest),
    // Aborts one live request; found = false when the sink has none with that tag.
    caf::result<CancelReply>(CancelRequest),
    // The live requests of all sinks.
    caf::result<RequestList>(ListRequests),
    // Aborts one of them, whosever it is; found = false when there is none of that id.
    caf::result<CancelReply>(AbortRequest),
    // The prefix cache finds nothing any more of what there is now.
    caf::result<PrefixCacheReset>(ResetPrefixCache),
    // A snapshot of the engine's counters.
    caf::result<EngineStats>(GetStats),
    // A snapshot of all that is counted, of every actor that counts. An error when the engine has failed.
    caf::result<metrics::EngineMetrics>(GetMetrics),
    // What it is doing now, of bounded size. An error when the engine has failed.
    caf::result<view::EngineView>(GetView),
    // What is served; constant.
    caf::result<ModelInfo>(GetModelInfo),
    // Text to ids with the model's tokenizer.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest),
    // The shutdown ladder's first step; answered when no request is live.
    caf::result<Drained>(Drain),
    // Answered as soon as no request is live.
    caf::result<Idle>(AwaitIdle),
    // (private) a client has ended: its requests are aborted, its texts are not tokenized.
    caf::result<void>(SinkGone),
    // (private) the drain's time is over: live requests are aborted.
    caf::result<void>(DrainTimeout),
    // (private) the time of a live request may be over.
    caf::result<void>(DeadlineDue),
    // (private) output processor -> router: the request has ended; its terminal output follows.
    caf::result<void>(RequestClosed),
    // (private) the output processor has ended: requests that it has not told end here, and later ones are refused.
    caf::result<void>(ChildGone),
    // (private) supervisor: all other actors end; what is live or asked later gets the error.
    caf::result<void>(EngineFailed)>;

/// Runs the tokenizer on a thread of its own, so that a long prompt delays nobody's step.
using TokenizerActor = Interface<
    // (private) router: the prompt of a request.
    caf::result<TokenizeReply>(EncodePrompt),
    // Text to ids.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest)>;

/// Compiles grammars on a thread of its own, so that one that takes long delays nobody who has none.
using GrammarCompilerActor = Interface<
    // (private) router: what a request's text must be.
    caf::result<CompileReply>(CompileGrammar)>;

/// Where a device's results go: the scheduler, or the way to it.
using StepSinkActor = Interface<
    // Message 8, from a worker, in the order of the steps.
    caf::result<void>(StepResult),
    // (private) cache engine: what the swaps of one plan took.
    caf::result<void>(SwapMeasured)>;

/// Who keeps a device: the supervisor of the replica, or the way to it.
using DeviceKeeperActor = Interface<
    // (private) worker, cache engine: why it is about to end.
    caf::result<void>(DeviceFailed)>;

/// Owns waiting, running and swapped queues, budgets and the steps in flight.
using SchedulerActor = Interface<
    // Message 2: an admitted request.
    caf::result<void>(AddGroup),
    // Message 2: ends a request in whatever state; idempotent.
    caf::result<void>(AbortGroup),
    // (private) router: ends a request whose time is over; idempotent.
    caf::result<void>(ExpireGroup),
    // (private) router: how far its requests have come.
    caf::result<Progress>(GetProgress),
    // (private) router: the block manager is told with the next plan, which comes as soon as one may.
    caf::result<PrefixCacheReset>(ResetPrefixCache),
    // Message 8, from a worker, in the order of the steps.
    caf::result<void>(StepResult),
    // Message 11: a stop string ended a sequence.
    caf::result<void>(StopHit),
    // (private) cache engine: what the swaps of one plan took.
    caf::result<void>(SwapMeasured),
    // (private) its mask threads: they have answers.
    caf::result<void>(MasksAnswered),
    // (private) itself: a step goes on without the masks that are not made.
    caf::result<void>(MasksDue),
    // (private) supervisor: workers without rows took the place of dead ones.
    caf::result<void>(DeviceReplaced),
    // (private) supervisor: what the stats tell of the devices from now on.
    caf::result<void>(DeviceStatus),
    // A snapshot of the counters.
    caf::result<EngineStats>(GetStats),
    // (private) router: the same, and what it counts beside them.
    caf::result<metrics::SchedulerMetrics>(GetMetrics),
    // (private) router: what its requests do, and what its block manager tells.
    caf::result<view::ReplicaView>(GetView)>;

/// Owns every block id, reference count, block table, prefix-cache entry and swap mapping.
using BlockManagerActor = Interface<
    // Message 3, answered with message 5; message 4 goes to the cache engines before the answer.
    caf::result<MemoryGrant>(MemoryRequest),
    // (private) supervisor: cache engines took the place of dead ones. The scheduler is told behind it
    // (DeviceReplaced), so a plan with device_memory_lost comes later; plans that the dead have left come before.
    caf::result<void>(CacheEnginesReplaced),
    // (private) scheduler: who holds which block.
    caf::result<view::BlockMap>(GetView)>;

/// Owns the KV memory of one device and moves blocks on its own stream.
using CacheEngineActor = Interface<
    // Message 4: executed in stream order after the steps it is stamped with.
    caf::result<void>(CachePlan),
    // (private) worker: where a step ends on the compute stream.
    caf::result<void>(StepEnqueued),
    // (private) a worker, before its first step: it takes part from now on; answered with CacheConnected.
    caf::result<void>(ConnectCache),
    // (private) supervisor: the worker of the same device, and where measurements go.
    caf::result<void>(ConnectWorker),
    // (private) its own stream: it has failed.
    caf::result<void>(DeviceFailed)>;

/// Owns the compute stream, the weights and the batch rows of one device.
using WorkerActor = Interface<
    // Message 6: enqueues the step; the answer (message 8) comes from a completion callback.
    caf::result<void>(ExecuteStep),
    // Behind message 6 of a step that waits for it: the step samples.
    caf::result<void>(StepMasks),
    // Message 7: the plan of a step is enqueued; the compute stream waits for its event.
    caf::result<void>(CacheReady),
    // (private) cache engine: the answer to ConnectCache.
    caf::result<void>(CacheConnected),
    // (private) supervisor, once: where results go.
    caf::result<void>(ConnectScheduler),
    // (private) its own stream: it has failed.
    caf::result<void>(DeviceFailed)>;

/// Stands for the worker and the cache engine of a process of their own: what is sent to either goes there. Both are
/// one actor, so that a cache plan that was sent before a step arrives before it.
using DeviceProcessActor = Interface<
    // Of WorkerActor. Steps and cache plans go to the process; only there do the others come.
    caf::result<void>(ExecuteStep), caf::result<void>(StepMasks), caf::result<void>(CacheReady),
    caf::result<void>(CacheConnected), caf::result<void>(ConnectScheduler),
    // Of CacheEngineActor.
    caf::result<void>(CachePlan), caf::result<void>(StepEnqueued), caf::result<void>(ConnectCache),
    caf::result<void>(ConnectWorker),
    // (private) of both: the process has ended, or must.
    caf::result<void>(DeviceFailed)>;

/// Owns incremental detokenizers, stop matchers and the way to each sink.
using OutputProcessorActor = Interface<
    // (private) router: a request and its sink, before its first output.
    caf::result<void>(OpenOutput),
    // Message 9; answered to the sinks with message 10 and to the scheduler with message 11.
    caf::result<void>(StepOutputs),
    // (private) supervisor, once: where RequestClosed goes.
    caf::result<void>(ConnectOutputs),
    // (private) router: answered behind the outputs of what was closed.
    caf::result<OutputsFlushed>(FlushOutputs),
    // (private) router: the journal keeps its requests as they are.
    caf::result<void>(StopRecording),
    // (private) router: what it counts.
    caf::result<metrics::RequestMetrics>(GetMetrics),
    // (private) router: what it knows of requests.
    caf::result<view::RequestFacts>(GetRequestFacts),
    // (private) router: every live request ends with the error, then this actor.
    caf::result<void>(EngineFailed)>;

struct OpenOutput {
  SharedSpec spec;
  SinkActor sink;
  SchedulerActor scheduler;  ///< that runs the request
};
struct ConnectWorker {
  WorkerActor worker;
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
};
struct DeviceReplaced {
  std::vector<WorkerActor> workers;  ///< by rank
  bool memory_lost = false;          ///< the cache engines' memory is new as well
  bool crashed = true;               ///< what ran may be the reason; not where a process was killed from outside
};
/// What became of the devices of a replica, for its stats.
struct DeviceStatus {
  std::int64_t deaths = 0;         ///< processes that ended by themselves, or were killed by somebody else
  std::int64_t hangs = 0;          ///< processes that were killed because they did nothing any more
  std::vector<std::int64_t> pids;  ///< of those that live, by rank; none where devices live in this process
  std::string health = "ok";       ///< or why nothing is computed until devices are replaced
};
struct CacheEnginesReplaced {
  std::vector<CacheEngineActor> cache_engines;  ///< by rank
  bool memory_lost = true;  ///< their memory holds nothing; else what the dead have left of plans is to be done
};
struct ConnectScheduler {
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
};
struct ConnectOutputs {
  RequestRouterActor router;
};
struct ConnectRoot {
  SupervisorActor root;
};
/// The actors of a group of devices, by rank. One rank today.
struct DeviceGroup {
  std::vector<WorkerActor> workers;
  std::vector<CacheEngineActor> cache_engines;
};
/// What plans and runs steps: a scheduler, its block manager and its devices.
struct Replica {
  SchedulerActor scheduler;
  BlockManagerActor block_manager;
  DeviceGroup devices;
};
struct GetReplica {};

}  // namespace pagoda::actors

/// Every message type, listed once. PAGODA_VALUE: plain values of engine/step that may cross to another process, by
/// their visit_fields (wire.hpp). PAGODA_LOCAL: stays in this process, because it holds what can never leave it: sinks,
/// and requests and answers of clients (the router's), addresses, handles (supervisors'), events and streams (a
/// device's).
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
PAGODA_VALUE(pagoda::actors::DeviceFailed)
PAGODA_LOCAL(pagoda::actors::ExpireGroup)
PAGODA_LOCAL(pagoda::actors::GetProgress)
PAGODA_LOCAL(pagoda::actors::Progress)
PAGODA_LOCAL(pagoda::OutputBatch)
PAGODA_LOCAL(pagoda::EngineStats)
PAGODA_LOCAL(pagoda::metrics::SchedulerMetrics)
PAGODA_LOCAL(pagoda::metrics::RequestMetrics)
PAGODA_LOCAL(pagoda::metrics::EngineMetrics)
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
PAGODA_LOCAL(pagoda::actors::AwaitIdle)
PAGODA_LOCAL(pagoda::actors::Idle)
PAGODA_LOCAL(pagoda::actors::EncodePrompt)
PAGODA_LOCAL(pagoda::actors::CompileGrammar)
PAGODA_LOCAL(pagoda::actors::CompileReply)
PAGODA_LOCAL(pagoda::actors::SinkGone)
PAGODA_LOCAL(pagoda::actors::DrainTimeout)
PAGODA_LOCAL(pagoda::actors::DeadlineDue)
PAGODA_LOCAL(pagoda::actors::OpenOutput)
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
PAGODA_LOCAL(pagoda::actors::EngineFailed)
PAGODA_LOCAL(pagoda::actors::MasksAnswered)
PAGODA_LOCAL(pagoda::actors::MasksDue)
CAF_END_TYPE_ID_BLOCK(pagoda)
#undef PAGODA_VALUE
#undef PAGODA_LOCAL
