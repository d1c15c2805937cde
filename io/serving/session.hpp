#pragma once

/// Connects one client's connection to the engine, whatever the connection's protocol: typed requests in, typed events
/// out. A session is one actor. The actor is the sink of its requests and sends them to the request routers of their
/// models, so their order is kept. When the actor ends, the routers abort its requests.

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "actors/interfaces.hpp"
#include "actors/model_pool.hpp"
#include "io/serving/outbox.hpp"
#include "io/serving/served_adapters.hpp"

namespace pagoda::serving {

/// Requests to the engine that do not generate. A change of adapters is settled even if the session ends meanwhile.
using Query =
    std::variant<SharedAdapterChange, actors::TokenizeRequest, actors::DetokenizeRequest, actors::GetModelInfo,
                 actors::GetStats, actors::GetMetrics, actors::GetView, actors::ListRequests, actors::AbortRequest,
                 actors::ResetPrefixCache, actors::DrainReplica, actors::StartReplica, actors::MigrateRequest>;
/// The engine has made a change of adapters.
struct AdapterChanged {
  SharedAdapterChange change;
};
using SharedMetrics = std::shared_ptr<const metrics::EngineMetrics>;
using SharedView = std::shared_ptr<const view::EngineView>;
/// Answer to a query: of the type that belongs to the query, or an error if the engine refuses or does not
/// answer.
using Answer = std::variant<TokenIds, std::string, ModelInfo, EngineStats, SharedMetrics, SharedView,
                            actors::RequestList, actors::CancelReply, actors::PrefixCacheReset, actors::ReplicaDrained,
                            actors::ReplicaStarted, actors::RequestMigrated, AdapterChanged, Error>;

// Events. `tag` is the number that the user of the session gave to the request or query.

/// The engine has accepted the request. The request's first output may come before this event.
struct Accepted {
  std::uint64_t tag = 0;
  std::int64_t prompt_tokens = 0;  ///< 0 if the request has ended already
};
/// The request was refused: no other event follows for it.
struct Refused {
  std::uint64_t tag = 0;
  Error error;
};
struct QueryAnswered {
  std::uint64_t tag = 0;
  Answer answer;
};
/// All events that were available when `flush` was processed have been delivered.
struct FlushMark {};
/// The session has failed, for example because there was no memory for an event. No other event follows, and live
/// requests are aborted.
struct SessionFailed {};

using Event = std::variant<OutputBatch, Accepted, Refused, QueryAnswered, FlushMark, SessionFailed>;

/// Returns the error that clients receive after SessionFailed.
Error session_failure();

// Messages from a Session to its actor.

struct Submit {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
  std::shared_ptr<const GenerateRequest> request;
};
struct Cancel {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
};
struct SendQuery {
  actors::RequestRouterActor router;
  std::uint64_t tag = 0;
  Query query;
};
struct Flush {};
struct AfterSent {
  std::function<void()> what;
};

using SessionActor =
    actors::Interface<caf::result<void>(OutputBatch), caf::result<void>(Submit), caf::result<void>(Cancel),
                      caf::result<void>(SendQuery), caf::result<void>(Flush), caf::result<void>(AfterSent)>;

/// Everything runs on the I/O thread. The actor is made with the first request or query, so an idle session costs
/// nothing.
class Session {
 public:
  /// Receives the events in order, several in one call if they came together. It may close the session.
  using OnEvents = std::function<void(std::vector<Event>&)>;

  /// `system` and `io` must outlive the session.
  Session(boost::asio::io_context& io, caf::actor_system& system, OnEvents on_events);
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `router` is the router of the model. Pass to cancel() the router that the request was submitted to.

  /// Starts a request. No live request may have the same `tag`. The request's events are Accepted, and OutputBatch up
  /// to its one terminal output; or one Refused.
  void submit(const actors::RequestRouterActor& router, std::uint64_t tag,
              std::shared_ptr<const GenerateRequest> request);

  /// Cancels a request. Its terminal output still follows, with the finish reason `abort`, or another one if the
  /// request ended before.
  void cancel(const actors::RequestRouterActor& router, std::uint64_t tag);

  void ask(const actors::RequestRouterActor& router, std::uint64_t tag, Query query);

  void flush();

  /// Calls `what` on an unspecified thread after all earlier requests and questions were sent to the routers.
  void after_sent(std::function<void()> what);

  /// Aborts the live requests. No event is delivered afterwards.
  void close();

 private:
  const SessionActor& actor();

  caf::actor_system& system_;
  std::shared_ptr<Outbox<Event>> outbox_;
  SessionActor actor_;
  bool closed_ = false;
};

/// Registers all message types of actors/ and of sessions with CAF 1.x, which requires this before the first
/// caf::actor_system of a process. May be called again. Does nothing with CAF 0.17.
void init_actor_types();

}  // namespace pagoda::serving

CAF_BEGIN_TYPE_ID_BLOCK(pagoda_serving, caf::id_block::pagoda_pool::end)
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Submit))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Cancel))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::SendQuery))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::Flush))
CAF_ADD_TYPE_ID(pagoda_serving, (pagoda::serving::AfterSent))
CAF_END_TYPE_ID_BLOCK(pagoda_serving)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Submit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Cancel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::SendQuery)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::Flush)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(pagoda::serving::AfterSent)
