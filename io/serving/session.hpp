#pragma once

/// Between one client's connection and the engine, whatever the connection speaks: typed requests in, typed events out.
/// A session is one actor. It is the sink of its requests and sends them to the request router of the model they are
/// for, so their order is kept and their fate is tied to it: when it ends, the routers abort them.

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "actors/interfaces.hpp"
#include "actors/model_pool.hpp"
#include "io/serving/outbox.hpp"

namespace pagoda::serving {

/// What may be asked of the engine beside generating.
using Question = std::variant<actors::TokenizeRequest, actors::DetokenizeRequest, actors::GetModelInfo,
                              actors::GetStats, actors::GetMetrics, actors::GetView, actors::ListRequests,
                              actors::AbortRequest, actors::ResetPrefixCache>;
using SharedMetrics = std::shared_ptr<const metrics::EngineMetrics>;
using SharedView = std::shared_ptr<const view::EngineView>;
/// The answer to a question: of the kind that was asked for, or an error where the engine refused or does not answer.
using Answer = std::variant<TokenIds, std::string, ModelInfo, EngineStats, SharedMetrics, SharedView,
                            actors::RequestList, actors::CancelReply, actors::PrefixCacheReset, Error>;

// Events. `tag` is the number that the client of the session gave its request or question.

/// The request has entered the engine. Its first output may come before this does.
struct Accepted {
  std::uint64_t tag = 0;
  std::int64_t prompt_tokens = 0;  ///< 0 when it has ended already
};
/// The request was refused: nothing else will be heard of it.
struct Refused {
  std::uint64_t tag = 0;
  Error error;
};
struct Answered {
  std::uint64_t tag = 0;
  Answer answer;
};
/// Everything that was asked of the session before `flush` and could be told up to then has been told.
struct FlushMark {};
/// The session has failed, as where there was no memory for an event: nothing else will be heard, and what was live is
/// aborted.
struct SessionFailed {};

using Event = std::variant<OutputBatch, Accepted, Refused, Answered, FlushMark, SessionFailed>;

/// What clients hear of that.
Error session_failure();

/// Session -> its actor.
struct Submit {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
  std::shared_ptr<const GenerateRequest> request;
};
struct Cancel {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
};
struct Ask {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
  Question question;
};
struct Flush {};
struct Behind {
  std::function<void()> what;
};

using SessionActor =
    actors::Interface<caf::result<void>(OutputBatch), caf::result<void>(Submit), caf::result<void>(Cancel),
                      caf::result<void>(Ask), caf::result<void>(Flush), caf::result<void>(Behind)>;

/// Everything runs on the I/O thread. The actor is made with the first thing that is asked, so an idle session costs
/// nothing.
class Session {
 public:
  /// `on_events` gets the events in order, those that came together in one call; it may close the session.
  using OnEvents = std::function<void(std::vector<Event>&)>;

  /// `system` and `io` must outlive it.
  Session(boost::asio::io_context& io, caf::actor_system& system, OnEvents on_events);
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `router`: of the model that it is for. A request is cancelled where it was submitted.

  /// Starts a request; a `tag` must not be that of a live one. It is heard of in Accepted, and in OutputBatch up to its
  /// one terminal output; or once in Refused.
  void submit(const actors::RequestRouterActor& router, std::uint64_t tag,
              std::shared_ptr<const GenerateRequest> request);

  /// Its terminal output, with the finish reason `abort` or what it ended with before, is still to come.
  void cancel(const actors::RequestRouterActor& router, std::uint64_t tag);

  void ask(const actors::RequestRouterActor& router, std::uint64_t tag, Question question);

  void flush();

  /// Calls it, on any thread, when all that was asked before has been sent.
  void behind(std::function<void()> what);

  /// Aborts what is live. No event comes after it.
  void close();

 private:
  const SessionActor& actor();

  caf::actor_system& system_;
  std::shared_ptr<Outbox<Event>> outbox_;
  SessionActor actor_;
  bool closed_ = false;
};

/// Makes all message types of actors/ and of sessions known to CAF 1.x, which asks for it before the first
/// caf::actor_system of a process. Once more does no harm; on CAF 0.17 there is nothing to do.
void init_actor_types();

}  // namespace pagoda::serving

CAF_BEGIN_TYPE_ID_BLOCK(pagoda_serving, caf::id_block::pagoda_pool::end)
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Submit))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Cancel))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Ask))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Flush))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Behind))
CAF_END_TYPE_ID_BLOCK(pagoda_serving)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Submit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Cancel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Ask)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Flush)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Behind)
