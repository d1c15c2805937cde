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

/// Private: a submitted prompt on its way through the tokenizer.
struct EncodePrompt {
  RequestId request = 0;
  std::shared_ptr<const GenerateRequest> generate;
};
struct PromptEncoded {
  RequestId request = 0;
  Result<TokenIds> token_ids;
};

// -- router -> scheduler and output processor --------------------------------------------------------------------------

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
/// Output processor -> router: the terminal output of the request has been sent.
struct RequestClosed {
  RequestId request = 0;
};

// -- cache engine -> worker --------------------------------------------------------------------------------------------

/// Message 7: the plan of `step` is enqueued on the cache engine's stream; the compute stream must wait for `event`.
struct CacheReady {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

/// Worker -> cache engine: `event` ends step `step` on the compute stream; cache operations stamped with it wait for it.
struct StepEnqueued {
  StepId step = 0;
  std::shared_ptr<kernels::Event> event;
};

// -- scheduler's own ----------------------------------------------------------------------------------------------------

/// Supervisor -> scheduler: the workers are new and know no rows; every running group must be recomputed.
struct WorkersReplaced {
  std::int64_t generation = 0;
};

}  // namespace pagoda::actors

/// Every message type, registered once. They travel inside one process (pointers to immutable data), never over a network.
CAF_BEGIN_TYPE_ID_BLOCK(pagoda, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(pagoda, (pagoda::OutputBatch))
CAF_ADD_TYPE_ID(pagoda, (pagoda::PlanStep))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepPlan))
CAF_ADD_TYPE_ID(pagoda, (pagoda::CachePlan))
CAF_ADD_TYPE_ID(pagoda, (pagoda::ExecuteStep))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepResult))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StepOutputs))
CAF_ADD_TYPE_ID(pagoda, (pagoda::StopHit))
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
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::PromptEncoded))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::AddGroup))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::OpenOutput))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::AbortGroup))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::RequestClosed))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::CacheReady))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::StepEnqueued))
CAF_ADD_TYPE_ID(pagoda, (pagoda::actors::WorkersReplaced))
CAF_END_TYPE_ID_BLOCK(pagoda)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::OutputBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::PlanStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepPlan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::CachePlan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::ExecuteStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepResult)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StepOutputs)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::StopHit)
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
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::PromptEncoded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::AddGroup)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::OpenOutput)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::AbortGroup)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::RequestClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::CacheReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::StepEnqueued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::actors::WorkersReplaced)
