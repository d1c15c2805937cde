#pragma once

/// All typed actor interfaces, one line of contract per message. (private) marks messages between the engine's own
/// actors; users send only the others, and only to the request router.

#include "actors/messages.hpp"

namespace pagoda::actors {

struct ConnectWorker;
struct WorkerReplaced;
struct ConnectScheduler;
struct ConnectOutputs;

/// Keeps the others alive or ends them together.
using SupervisorActor = Interface<
    // (private) one of its actors has ended.
    caf::result<void>(ChildGone),
    // (private) worker, cache engine: why it is about to end.
    caf::result<void>(DeviceFailed)>;

/// Message 1 and its neighbours: the only actor that clients talk to.
using RequestRouterActor = Interface<
    // Message 1: validates once, before anything is allocated; answers with a ticket or a typed error.
    caf::result<SubmitReply>(SubmitRequest),
    // Aborts one live request; found = false when the sink has none with that tag.
    caf::result<CancelReply>(CancelRequest),
    // A snapshot of the engine's counters.
    caf::result<EngineStats>(GetStats),
    // What is served; constant.
    caf::result<ModelInfo>(GetModelInfo),
    // Text to ids with the model's tokenizer.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest),
    // The shutdown ladder's first step; answered when no request is live.
    caf::result<Drained>(Drain),
    // (private) a client has ended: its requests are aborted, its texts are not tokenized.
    caf::result<void>(SinkGone),
    // (private) the drain's time is over: live requests are aborted.
    caf::result<void>(DrainTimeout),
    // (private) output processor -> router: the request has ended; its terminal output follows.
    caf::result<void>(RequestClosed),
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

/// Owns waiting, running and swapped queues, budgets and the steps in flight.
using SchedulerActor = Interface<
    // Message 2: an admitted request.
    caf::result<void>(AddGroup),
    // Message 2: ends a request in whatever state; idempotent.
    caf::result<void>(AbortGroup),
    // Message 8, from a worker, in the order of the steps.
    caf::result<void>(StepResult),
    // Message 11: a stop string ended a sequence.
    caf::result<void>(StopHit),
    // (private) cache engine: what the swaps of one plan took.
    caf::result<void>(SwapMeasured),
    // (private) supervisor: a worker without rows took the place of a dead one.
    caf::result<void>(WorkerReplaced),
    // A snapshot of the counters.
    caf::result<EngineStats>(GetStats)>;

/// Owns every block id, reference count, block table, prefix-cache entry and swap mapping.
using BlockManagerActor = Interface<
    // Message 3, answered with message 5; message 4 goes to the cache engines before the answer.
    caf::result<StepPlan>(PlanStep)>;

/// Owns the KV memory of one device and moves blocks on its own stream.
using CacheEngineActor = Interface<
    // Message 4: executed in stream order after the steps it is stamped with.
    caf::result<void>(CachePlan),
    // (private) worker: where a step ends on the compute stream.
    caf::result<void>(StepEnqueued),
    // (private) supervisor: the worker that waits for CacheReady, and where measurements go; steps enqueued before have
    // passed.
    caf::result<void>(ConnectWorker),
    // (private) its own stream: it has failed.
    caf::result<void>(DeviceFailed)>;

/// Owns the compute stream, the weights and the batch rows of one device.
using WorkerActor = Interface<
    // Message 6: enqueues the step; the answer (message 8) comes from a completion callback.
    caf::result<void>(ExecuteStep),
    // Message 7: the plan of a step is enqueued; the compute stream waits for its event.
    caf::result<void>(CacheReady),
    // (private) supervisor, once: where results go.
    caf::result<void>(ConnectScheduler),
    // (private) its own stream: it has failed.
    caf::result<void>(DeviceFailed)>;

/// Owns incremental detokenizers, stop matchers and the way to each sink.
using OutputProcessorActor = Interface<
    // (private) router: a request and its sink, before its first output.
    caf::result<void>(OpenOutput),
    // Message 9; answered to the sinks with message 10 and to the scheduler with message 11.
    caf::result<void>(StepOutputs),
    // (private) supervisor, once: where StopHit and RequestClosed go.
    caf::result<void>(ConnectOutputs),
    // (private) router: answered behind the outputs of what was closed.
    caf::result<OutputsFlushed>(FlushOutputs),
    // (private) router: every live request ends with the error, then this actor.
    caf::result<void>(EngineFailed)>;

struct ConnectWorker {
  WorkerActor worker;
  SchedulerActor scheduler;
  caf::actor_addr supervisor;
};
struct WorkerReplaced {
  WorkerActor worker;
};
struct ConnectScheduler {
  SchedulerActor scheduler;
  caf::actor_addr supervisor;
};
struct ConnectOutputs {
  SchedulerActor scheduler;
  RequestRouterActor router;
};

}  // namespace pagoda::actors

/// Every message type, registered once. They travel inside one process (pointers to immutable data), never over a
/// network.
CAF_BEGIN_TYPE_ID_BLOCK(pagoda, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(pagoda, (pagoda::OutputBatch))
CAF_ADD_TYPE_ID(pagoda, (pagoda::PlanStep))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepPlan))
CAF_ADD_TYPE_ID(pagoda, (pagoda::CachePlan))
CAF_ADD_TYPE_ID(pagoda, (pagoda::ExecuteStep))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepResult))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepOutputs))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StopHit))
CAF_ADD_TYPE_ID(pagoda, (pagoda::SwapMeasured))
CAF_ADD_TYPE_ID(pagoda, (pagoda::EngineStats))
CAF_ADD_TYPE_ID(pagoda, (pagoda::ModelInfo))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::SubmitRequest))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::SubmitReply))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::CancelRequest))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::CancelReply))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::GetStats))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::GetModelInfo))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::TokenizeRequest))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::TokenizeReply))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::DetokenizeRequest))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::DetokenizeReply))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::Drain))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::Drained))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::EncodePrompt))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::SinkGone))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::DrainTimeout))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::AddGroup))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::OpenOutput))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::AbortGroup))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::RequestClosed))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::CacheReady))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::StepEnqueued))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::ConnectWorker))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::WorkerReplaced))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::ConnectOutputs))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::ConnectScheduler))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::ChildGone))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::DeviceFailed))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::EngineFailed))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::FlushOutputs))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::OutputsFlushed))
CAF_END_TYPE_ID_BLOCK(pagoda)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::OutputBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::PlanStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepPlan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::CachePlan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::ExecuteStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepResult)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepOutputs)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StopHit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::SwapMeasured)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::EngineStats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::ModelInfo)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::SubmitRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::SubmitReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::CancelRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::CancelReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::GetStats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::GetModelInfo)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::TokenizeRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::TokenizeReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::DetokenizeRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::DetokenizeReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::Drain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::Drained)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::EncodePrompt)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::SinkGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::DrainTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::AddGroup)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::OpenOutput)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::AbortGroup)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::RequestClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::CacheReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::StepEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ConnectWorker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::WorkerReplaced)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ConnectOutputs)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ConnectScheduler)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::ChildGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::DeviceFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::EngineFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::FlushOutputs)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::OutputsFlushed)
