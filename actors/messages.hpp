#pragma once

/// Message types that name actors or cross the border of the engine. The step messages (MemoryRequest, MemoryGrant,
/// CachePlan, ExecuteStep, StepResult, StepOutputs, StopHit) are plain values of engine/step/.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf_compat.hpp"
#include "engine/grammar/compiled_grammar.hpp"
#include "engine/metrics/engine_metrics.hpp"
#include "engine/request/generate_request.hpp"
#include "engine/request/live_request.hpp"
#include "engine/request/output.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/routing/work_rate.hpp"
#include "engine/stats.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/view/engine_view.hpp"
#include "kernels/device.hpp"

namespace pagoda::actors {

/// Receives the outputs of requests: one OutputBatch per sink and step. When a sink ends, its requests are aborted.
using SinkActor = Interface<caf::result<void>(OutputBatch)>;

// -- client -> router ----------------------------------------------------------------------------------------------

/// Message 1. The owner of the sink chooses `tag`, unique among the live requests of the sink. Every output repeats it.
struct SubmitRequest {
  std::shared_ptr<const GenerateRequest> request;
  SinkActor sink;
  std::uint64_t tag = 0;
  TimeUs waited_us = 0;  ///< time since its arrival in which the request waited for its model to be loaded
};
/// The ticket, or the reason why the request was refused. A refused request sends nothing to its sink.
struct SubmitReply {
  Result<RequestId> ticket;
  std::int64_t prompt_tokens = 0;  ///< number of prompt tokens of a request that has entered the engine
};

/// Aborts a live request of the sink. Its terminal output (done with finish reason abort, unless it has just ended)
/// still goes to the sink.
struct CancelRequest {
  SinkActor sink;
  std::uint64_t tag = 0;
};
struct CancelReply {
  bool found = false;
};

/// For operators: returns the live requests of all sinks, in the order in which they came.
struct ListRequests {};
struct RequestList {
  std::vector<LiveRequest> requests;
};
/// Aborts a live request of any sink, as CancelRequest does for the sink itself. found = false when there is no such
/// request.
struct AbortRequest {
  RequestId request = 0;
};
/// Makes the prefix cache find none of the blocks that are cached now. Running requests go on.
struct ResetPrefixCache {};
struct PrefixCacheReset {};

struct GetStats {};
/// Asks for all counters: the router answers with EngineMetrics, other actors with their part of it.
struct GetMetrics {};
struct GetModelInfo {};

/// Asks what the engine is doing, for a viewer. The answer has the spans with numbers above `spans_after`, and the
/// blocks of one replica. Span recording goes on for a while after each GetView.
struct GetView {
  std::uint64_t spans_after = 0;
  ReplicaId replica = 0;
};

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
  std::vector<ByteRange> literals = {};  ///< as in GenerateRequest::prompt_literals
};
struct TokenizeReply {
  Result<TokenIds> token_ids;
  std::vector<TokenIds> bad_words = {};  ///< tokens of the bad words of an EncodePrompt
};
struct DetokenizeRequest {
  std::vector<std::int64_t> token_ids;
  bool skip_special_tokens = true;
};
struct DetokenizeReply {
  Result<std::string> text;
};

/// Makes the router refuse new requests (shutting_down). Answered when every live request has ended. After `timeout_ms`
/// the router aborts the live requests. kNoTimeout: they run until they end by themselves.
struct Drain {
  static constexpr std::int64_t kNoTimeout = -1;
  std::int64_t timeout_ms = 0;
};
struct Drained {
  std::int64_t aborted = 0;  ///< number of requests that were aborted
};

/// Makes one replica take no new requests. Its requests run to their ends, then the replica ends. Answered when it has
/// ended, or at once. May be sent again with `moves_requests` to a replica that drains.
struct DrainReplica {
  ReplicaId replica = 0;
  bool waits = true;            ///< false: answered as soon as the replica takes no new requests
  bool moves_requests = false;  ///< the replica ends now; its requests go on at the others with the tokens they have
};
struct ReplicaDrained {
  /// Errors: invalid_request with param "replica" (there is no such replica, it is down, or no other one is up; or all
  /// others went down before it was drained, and it goes on).
  Status status;
};

/// Moves a request to another replica, where it goes on with the tokens that it has. Answered when it is there.
struct MigrateRequest {
  RequestId request = 0;
  ReplicaId replica = 0;
};
struct RequestMigrated {
  /// Errors: invalid_request with param "id" (no replica has such a request, or it is moving) or "replica" (there is no
  /// such replica, it is not up, or it has the request; or it went down meanwhile, and the request goes on elsewhere),
  /// or the failure of the engine.
  Status status;
};

/// Starts a replica again that has ended. Answered when it takes requests, or at once.
struct StartReplica {
  ReplicaId replica = 0;
  bool waits = true;  ///< false: answered as soon as the start has begun
};
struct ReplicaStarted {
  /// Errors: invalid_request with param "replica" (there is no such replica, or it is not down), or why it cannot
  /// start.
  Status status;
};

/// Adds an adapter under a name that requests may then use. Answered when it is loaded. Errors: bad_adapter,
/// device_failed (no replica is up), invalid_request (param "lora_name": the name is taken; there are no adapters).
struct AddAdapter {
  std::string name;
  std::string path;
  bool stays_if_broken = false;  ///< whether requests may name it even if it cannot be loaded now
};
/// Removes an adapter: later requests cannot name it. Answered when the requests that use it have ended. Errors:
/// unknown_adapter, with param "lora_name".
struct RemoveAdapter {
  std::string name;
};
struct AdapterReply {
  Status status;
};
/// Returns the adapters that requests may name, sorted by name.
struct ListAdapters {};
struct AdapterInfo {
  std::string name;
  std::string path;
  bool is_loaded = false;         ///< false = it is loaded for the next request that names it
  std::int64_t num_requests = 0;  ///< number of live requests that use it
};
struct AdapterList {
  std::vector<AdapterInfo> adapters;
};

/// Answered as soon as no request is live. New requests are still accepted.
struct AwaitIdle {};
struct Idle {};

// -- router <-> tokenizer --------------------------------------------------------------------------------------------

/// Private: the texts of a submitted request that are to be tokenized. Answered with TokenizeReply.
struct EncodePrompt {
  std::shared_ptr<const GenerateRequest> generate;
  std::optional<std::int64_t> max_tokens = {};  ///< number of tokens kept at the end of the prompt; absent: all
};
/// Private, router -> grammar compiler: a request with structured_outputs.
struct CompileGrammar {
  std::shared_ptr<const GenerateRequest> generate;
};
struct CompileReply {
  Result<grammar::SharedGrammar> grammar;
};
/// Private: a sink, or the sender of a TokenizeRequest or DetokenizeRequest, has ended. Its requests are aborted, its
/// texts are not tokenized.
struct SinkGone {
  caf::actor_addr sink;
};
/// Private: the timeout of a Drain is over.
struct DrainTimeout {};
/// Private: the deadline of a request may have passed.
struct DeadlineDue {};

// -- scheduler, to itself

/// Private: the mask threads of the scheduler have answers.
struct MasksAnswered {};
/// Private: a step has waited for its masks as long as it is allowed to.
struct MasksDue {
  StepId step = 0;
};

// -- router -> scheduler and output processor

/// Message 2: an admitted request. Sent to the output processor with its sink first, then to the scheduler.
struct AddGroup {
  SharedSpec spec;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.spec); }
};
/// Ends a request. Allowed in every state; idempotent.
struct AbortGroup {
  RequestId request = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request); }
};
/// Private, router -> scheduler: ends a request whose deadline has passed, with `error`. Otherwise as AbortGroup.
struct ExpireGroup {
  RequestId request = 0;
  Error error;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.error); }
};
/// Private, router -> scheduler: gives a request up, without an output. Answered when no step or plan that is under way
/// has to do with it. found = false: it has ended.
struct ReleaseGroup {
  RequestId request = 0;
};
struct GroupReleased {
  bool found = false;
};
/// Private, router -> scheduler: asks for the progress of its requests.
struct GetProgress {};
struct Progress {
  std::vector<GroupProgress> groups;  ///< progress of each request, in the order of the ids
};
/// Output processor -> router: the request has ended. Sent before its terminal output, so that a client that has
/// received this output finds the request's place in the queue free.
struct RequestClosed {
  RequestId request = 0;
  routing::WorkDone work = {};
  bool adapter_failed = false;  ///< whether a device could not load the request's adapter
};

// -- cache engine -> worker

/// Message 7: the plan of `step` is enqueued on the stream of the cache engine. The compute stream must wait for
/// `event`.
struct CacheReady {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

/// The answer to ConnectCache: all plans up to `last_plan` end at `event`.
struct CacheConnected {
  StepId last_plan = 0;
  std::shared_ptr<kernels::Event> event;
  std::shared_ptr<const kernels::Stream> copy_stream;  ///< its status shows whether moves have failed
};

/// Worker -> cache engine: the worker is about to enqueue its first step. Earlier steps have ended, or will never run.
struct ConnectCache {
  StepId first_step = 0;
};

/// Worker -> cache engine: `event` marks the end of `step` on the compute stream. Cache operations that name this step
/// wait for the event.
struct StepEnqueued {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

// -- router <-> adapter store

/// Private: a request needs an adapter. The answer comes when the adapter is loaded; the request holds it then.
struct AcquireAdapter {
  RequestId request = 0;
  std::string name;
};
struct AdapterAcquired {
  Result<AdapterRef> adapter;  ///< errors: unknown_adapter, or those of the load
};
/// Private: takes a question back. If it is not answered yet, it gets an error as its answer and the request holds
/// nothing.
struct WithdrawAdapter {
  RequestId request = 0;
};
/// Private: a request that held the adapter has ended.
struct ReleaseAdapter {
  AdapterId adapter = 0;
};
/// Private: a device could not load an adapter for a row. Sent before the ReleaseAdapter of the row's request.
struct AdapterBroken {
  AdapterId adapter = 0;
};

// -- adapter store -> scheduler -> workers

/// Private: a device loads an adapter, so that later steps do not wait for it. Answered with AdapterLoaded.
struct LoadAdapter {
  AdapterRef adapter;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.adapter); }
};
struct AdapterLoaded {
  AdapterId adapter = 0;
  Result<AdapterFacts> facts;  ///< errors: bad_adapter

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.adapter, self.facts); }
};
/// Private: a device forgets an adapter. Rows that have it keep it until they end.
struct UnloadAdapter {
  AdapterId adapter = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.adapter); }
};

// -- failure and the end

/// Private, to a supervisor, or to the router about the output processor: one of the receiver's actors has ended.
struct ChildGone {
  caf::actor_addr child;
};

/// Role of a device's process in its failure.
enum class ProcessEnd : std::uint8_t {
  none,  ///< no process has ended; a stream has failed
  died,  ///< the process has ended
  hung,  ///< the process made no progress and was killed
};
constexpr ProcessEnd last_value(ProcessEnd) {
  return ProcessEnd::hung;
}

/// Private: a stream has failed for good (Stream::status), or the process of a device has ended. Goes to the actor that
/// owns the device. This actor forwards it to the supervisor of its replica and ends.
struct DeviceFailed {
  Error error;
  bool without_progress = false;  ///< whether the stream failed before it had ended a single step or plan
  /// Whether KV memory is lost: the stream is the cache engine's, or the memory of the process has not outlived it.
  bool memory_lost = false;
  ProcessEnd process = ProcessEnd::none;
  /// Whether the running requests may be the cause. False when the process was killed from outside.
  bool crashed = true;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.error, self.without_progress, self.memory_lost, self.process, self.crashed);
  }
};

/// Private, supervisor of a replica to itself: the pause before devices are replaced is over. Pauses grow when devices
/// fail one after the other.
struct ReplaceDevices {};

/// Private, supervisor of a replica -> root supervisor: the replica cannot go on, and ends.
struct ReplicaFailed {
  Error error;
  ReplicaId replica = 0;
};
/// Private, root supervisor -> router: the replica cannot go on, and another one is left. EndReplica follows when the
/// router has what it needs of the replica.
struct ReplicaDown {
  Error error;
  ReplicaId replica = 0;
};
/// Private, router -> root supervisor: the replica is drained, or down, and may end. Answered with ReplicaEnded.
struct EndReplica {
  ReplicaId replica = 0;
};
struct ReplicaEnded {
  Status status;  ///< an error if no other replica is left; then it does not end
  /// The counts of its scheduler at its end; absent if the scheduler had ended before.
  std::optional<metrics::SchedulerMetrics> last;
};
/// Private, root supervisor -> scheduler: ends. Answered with its last counts.
struct EndScheduler {};

/// Private, router -> root supervisor: starts a replica again that has ended. Answered with RestartedReplica.
struct RestartReplica {
  ReplicaId replica = 0;
};

/// Private, supervisor -> router -> output processor: the engine ends. Every live request and every later message to
/// the router gets `error`.
struct EngineFailed {
  Error error;
};

/// Private, router -> output processor: asks for facts about live requests and about those that ended last.
struct GetRequestFacts {
  std::vector<RequestId> requests;
};

/// Private, output processor -> router: unfinished requests of a replica, each with the tokens that it has (AddGroup
/// continues them).
struct HandedOver {
  std::vector<SharedSpec> requests;
};

/// Private, router -> output processor: stops the recording of its core. The journal keeps all requests that the output
/// processor received earlier, in their present state.
struct StopRecording {};

/// Private, router -> output processor: answered once the outputs of every closed request have been sent.
struct FlushOutputs {};
struct OutputsFlushed {};

}  // namespace pagoda::actors
