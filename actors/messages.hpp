#pragma once

/// Message types that name actors or cross the engine's border. The step messages themselves (PlanStep, StepPlan,
/// CachePlan, ExecuteStep, StepResult, StepOutputs, StopHit, OutputBatch) are plain structs of engine/.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "actors/caf_compat.hpp"
#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/scheduling/execution.hpp"
#include "engine/scheduling/plan.hpp"
#include "engine/stats.hpp"
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
};
/// The ticket, or why the request was refused. A refused request sends nothing to its sink.
struct SubmitReply {
  Result<RequestId> ticket;
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

struct GetStats {};
struct GetModelInfo {};

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
};
struct TokenizeReply {
  Result<TokenIds> token_ids;
};
struct DetokenizeRequest {
  std::vector<std::int64_t> token_ids;
  bool skip_special_tokens = true;
};
struct DetokenizeReply {
  Result<std::string> text;
};

/// Refuse new requests from now on (shutting_down); answer when every live one has ended. After `timeout_ms` the live
/// ones are aborted first.
struct Drain {
  std::int64_t timeout_ms = 0;
};
struct Drained {
  std::int64_t aborted = 0;  ///< how many had to be aborted
};

// -- router <-> tokenizer --------------------------------------------------------------------------------------------

/// Private: a submitted prompt on its way through the tokenizer; answered with TokenizeReply.
struct EncodePrompt {
  std::shared_ptr<const GenerateRequest> generate;
};
/// Private: a sink, or who asked for tokens, has ended: its requests are aborted, its texts are not tokenized.
struct SinkGone {
  caf::actor_addr sink;
};
/// Private: the time of a Drain is over.
struct DrainTimeout {};

// -- router -> scheduler and output processor
// --------------------------------------------------------------------------

/// Message 2: an admitted request. Sent to the output processor with its sink first, then to the scheduler.
struct AddGroup {
  SharedSpec spec;
};
struct OpenOutput {
  SharedSpec spec;
  SinkActor sink;
};
/// Legal in every state, idempotent.
struct AbortGroup {
  RequestId request = 0;
};
/// Output processor -> router: the request has ended. Sent before its terminal output, so that whoever hears of the end
/// finds the place free.
struct RequestClosed {
  RequestId request = 0;
};

// -- cache engine -> worker
// --------------------------------------------------------------------------------------------

/// Message 7: the plan of `step` is enqueued on the cache engine's stream; the compute stream must wait for `event`.
/// The first that counts for a worker `connects` it: all plans up to `step`, some made for a worker before it, end
/// there, and it runs nothing earlier.
struct CacheReady {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
  bool connects = false;
  std::shared_ptr<const kernels::Stream> copy_stream = nullptr;  ///< with `connects`: its status tells of lost moves
};

/// Worker -> cache engine: `event` ends step `step` on the compute stream; cache operations stamped with it wait for
/// it.
struct StepEnqueued {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

// -- failure and the end
// --------------------------------------------------------------------------------------------

/// Private, to the supervisor: one of its actors has ended.
struct ChildGone {
  caf::actor_addr child;
};

/// Private: a stream has failed for good (Stream::status). From its callbacks to the actor that owns it, which ends,
/// and tells the supervisor before.
struct DeviceFailed {
  Error error;
  bool in_vain = false;  ///< the worker had not ended a single step
};

/// Private, supervisor -> router -> output processor: the engine ends. Every live request gets `error`, and so does
/// whoever asks for something later.
struct EngineFailed {
  Error error;
};

/// Private, router -> output processor: answered once the outputs of every request that was closed have been sent.
struct FlushOutputs {};
struct OutputsFlushed {};

}  // namespace pagoda::actors
