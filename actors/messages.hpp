#pragma once

/// Message types that name actors or cross the engine's border. The step messages themselves (MemoryRequest,
/// MemoryGrant, CachePlan, ExecuteStep, StepResult, StepOutputs, StopHit) are plain values of engine/step/.

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

/// Where the outputs of requests go. One OutputBatch per sink and step. When a sink dies, its requests are aborted.
using SinkActor = Interface<caf::result<void>(OutputBatch)>;

// -- client -> router ----------------------------------------------------------------------------------------------

/// Message 1. `tag` is chosen by the sink's owner, unique among the sink's live requests, and echoed in every output.
struct SubmitRequest {
  std::shared_ptr<const GenerateRequest> request;
  SinkActor sink;
  std::uint64_t tag = 0;
  TimeUs waited_us = 0;  ///< since its arrival: for its model to be loaded
};
/// The ticket, or why the request was refused. A refused request sends nothing to its sink.
struct SubmitReply {
  Result<RequestId> ticket;
  std::int64_t prompt_tokens = 0;  ///< of a request that has entered the engine
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

/// For whoever runs the engine: the live requests of all sinks, in the order in which they came.
struct ListRequests {};
struct RequestList {
  std::vector<LiveRequest> requests;
};
/// Aborts a live request of any sink, as its own CancelRequest would; found = false when there is none such.
struct AbortRequest {
  RequestId request = 0;
};
/// Nothing that was computed before is found in the prefix cache any more; what runs goes on.
struct ResetPrefixCache {};
struct PrefixCacheReset {};

struct GetStats {};
/// For all that is counted: the router answers with EngineMetrics, others with their part of it.
struct GetMetrics {};
struct GetModelInfo {};

/// What the engine is doing, for somebody who watches it. Spans behind `spans_after` come along, and their recording
/// goes on for a while.
struct GetView {
  std::uint64_t spans_after = 0;
};

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
  std::vector<ByteRange> literals = {};  ///< as GenerateRequest::prompt_literals
};
struct TokenizeReply {
  Result<TokenIds> token_ids;
  std::vector<TokenIds> bad_words = {};  ///< of an EncodePrompt
};
struct DetokenizeRequest {
  std::vector<std::int64_t> token_ids;
  bool skip_special_tokens = true;
};
struct DetokenizeReply {
  Result<std::string> text;
};

/// Refuse new requests from now on (shutting_down); answer when every live one has ended. After `timeout_ms` the live
/// ones are aborted first; kNoTimeout: they are left to end by themselves.
struct Drain {
  static constexpr std::int64_t kNoTimeout = -1;
  std::int64_t timeout_ms = 0;
};
struct Drained {
  std::int64_t aborted = 0;  ///< how many had to be aborted
};

/// Answered as soon as no request is live; new ones are taken meanwhile.
struct AwaitIdle {};
struct Idle {};

// -- router <-> tokenizer --------------------------------------------------------------------------------------------

/// Private: the texts of a submitted request on their way through the tokenizer; answered with TokenizeReply.
struct EncodePrompt {
  std::shared_ptr<const GenerateRequest> generate;
  std::optional<std::int64_t> max_tokens = {};  ///< the last tokens of its prompt that are kept; absent: all
};
/// Private, router -> grammar compiler: a request with structured_outputs.
struct CompileGrammar {
  std::shared_ptr<const GenerateRequest> generate;
};
struct CompileReply {
  Result<grammar::SharedGrammar> grammar;
};
/// Private: a sink, or who asked for tokens, has ended: its requests are aborted, its texts are not tokenized.
struct SinkGone {
  caf::actor_addr sink;
};
/// Private: the time of a Drain is over.
struct DrainTimeout {};
/// Private: the time of a request may be over.
struct DeadlineDue {};

// -- scheduler, to itself

/// Private: its mask threads have answers.
struct MasksAnswered {};
/// Private: a step has waited for its masks as long as it may.
struct MasksDue {
  StepId step = 0;
};

// -- router -> scheduler and output processor
// --------------------------------------------------------------------------

/// Message 2: an admitted request. Sent to the output processor with its sink first, then to the scheduler.
struct AddGroup {
  SharedSpec spec;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.spec); }
};
/// Legal in every state, idempotent.
struct AbortGroup {
  RequestId request = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request); }
};
/// Private, router -> scheduler: ends a request whose time is over with `error`. As AbortGroup otherwise.
struct ExpireGroup {
  RequestId request = 0;
  Error error;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.error); }
};
/// Private, router -> scheduler: how far its requests have come.
struct GetProgress {};
struct Progress {
  std::vector<GroupProgress> groups;  ///< by their ids
};
/// Output processor -> router: the request has ended. Sent before its terminal output, so that whoever hears of the end
/// finds the place free.
struct RequestClosed {
  RequestId request = 0;
  routing::WorkDone work = {};
};

// -- cache engine -> worker
// --------------------------------------------------------------------------------------------

/// Message 7: the plan of `step` is enqueued on the cache engine's stream; the compute stream must wait for `event`.
struct CacheReady {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

/// The answer to ConnectCache: all plans up to `last_plan` end at `event`.
struct CacheConnected {
  StepId last_plan = 0;
  std::shared_ptr<kernels::Event> event;
  std::shared_ptr<const kernels::Stream> copy_stream;  ///< its status tells of lost moves
};

/// Worker -> cache engine: it is about to enqueue its first step. Those before it have passed, or never will.
struct ConnectCache {
  StepId first_step = 0;
};

/// Worker -> cache engine: `event` ends step `step` on the compute stream; cache operations stamped with it wait for
/// it.
struct StepEnqueued {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

// -- failure and the end
// --------------------------------------------------------------------------------------------

/// Private, to a supervisor, or to the router of the output processor: one of its actors has ended.
struct ChildGone {
  caf::actor_addr child;
};

/// What a device's process has to do with its failure.
enum class ProcessEnd : std::uint8_t {
  none,  ///< its stream has failed
  died,  ///< the process has ended
  hung,  ///< the process did nothing any more
};
constexpr ProcessEnd last_value(ProcessEnd) {
  return ProcessEnd::hung;
}

/// Private: a stream has failed for good (Stream::status), or a device's process has ended. To the actor that owns it,
/// which ends, and tells the supervisor of its replica before.
struct DeviceFailed {
  Error error;
  bool without_progress = false;  ///< the stream had not ended a single step or plan
  bool memory_lost = false;       ///< it is the cache engine's, or a process's whose memory has not outlived it
  ProcessEnd process = ProcessEnd::none;
  bool crashed = true;  ///< what it computed may be the reason; not where it was killed from outside

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.error, self.without_progress, self.memory_lost, self.process, self.crashed);
  }
};

/// Private, supervisor of a replica to itself: devices that fail one after the other are replaced in growing intervals.
struct ReplaceDevices {};

/// Private, supervisor of a replica -> supervisor: it cannot go on, and ends.
struct ReplicaFailed {
  Error error;
};

/// Private, supervisor -> router -> output processor: the engine ends. Every live request gets `error`, and so does
/// whoever asks for something later.
struct EngineFailed {
  Error error;
};

/// Private, router -> output processor: what it knows of live requests, and of those that ended last.
struct GetRequestFacts {
  std::vector<RequestId> requests;
};

/// Private, router -> output processor: nothing more is recorded of its core. The journal keeps all requests that it
/// was sent before, as they are.
struct StopRecording {};

/// Private, router -> output processor: answered once the outputs of every request that was closed have been sent.
struct FlushOutputs {};
struct OutputsFlushed {};

}  // namespace pagoda::actors
