#include "io/serving/session.hpp"

#include <string>
#include <utility>

namespace pagoda::serving {
namespace {

using namespace actors;

Error engine_gone() {
  return {ErrorCode::internal, "the engine does not answer"};
}

Answer to_answer(const TokenizeReply& reply) {
  return reply.token_ids ? Answer(*reply.token_ids) : Answer(reply.token_ids.error());
}
Answer to_answer(const DetokenizeReply& reply) {
  return reply.text ? Answer(*reply.text) : Answer(reply.text.error());
}
Answer to_answer(const ModelInfo& model) {
  return model;
}
Answer to_answer(const EngineStats& stats) {
  return stats;
}
Answer to_answer(const RequestList& list) {
  return list;
}
Answer to_answer(const CancelReply& cancelled) {
  return cancelled;
}
Answer to_answer(const PrefixCacheReset& reset) {
  return reset;
}
Answer to_answer(const ReplicaDrained& drained) {
  return drained.status ? Answer(drained) : Answer(drained.status.error());
}
Answer to_answer(const RequestMigrated& migrated) {
  return migrated.status ? Answer(migrated) : Answer(migrated.status.error());
}
Answer to_answer(const ReplicaStarted& started) {
  return started.status ? Answer(started) : Answer(started.status.error());
}
Answer to_answer(const metrics::EngineMetrics& metrics) {
  return std::make_shared<const metrics::EngineMetrics>(metrics);
}
Answer to_answer(const view::EngineView& view) {
  return std::make_shared<const view::EngineView>(view);
}

/// Returns an error of an adapter for the client that named its files: they are the client's to mend.
Error client_error(Error error) {
  if (error.code != ErrorCode::bad_adapter) return error;
  return {ErrorCode::invalid_request, std::move(error.message), "lora_path"};
}

/// Sends a change to the router, settles it with the answer, and ends.
template <class Message>
void change_adapters(caf::actor_system& system, const RequestRouterActor& router, Message message,
                     const SharedAdapterChange& change, std::function<void(const Status&)> on_answer) {
  // The router is an argument, because CAF 0.17 binds a reference to null if there is none.
  const auto run = [message = std::move(message), change, on_answer = std::move(on_answer)](
                       caf::event_based_actor* self, const RequestRouterActor& to) {
    const auto settle = [change, on_answer](const Status& status) {
      retry_on_bad_alloc([&] {
        change->settle(status);
        on_answer(status);
      });
    };
    request(
        self, to, message, [settle](const AdapterReply& reply) { settle(reply.status); },
        [settle](caf::error&) { settle(fail(engine_gone())); });
  };
  system.spawn(run, router);
}

struct SessionState {
  SessionState() {}

  SessionActor::pointer self = nullptr;
  std::shared_ptr<Outbox<Event>> outbox;

  SinkActor sink() const { return caf::actor_cast<SinkActor>(self); }

  void submit(const Submit& what) {
    request(
        self, what.router, SubmitRequest{what.request, sink(), what.tag},
        [this, tag = what.tag](const SubmitReply& reply) {
          if (reply.ticket) {
            outbox->push(Accepted{tag, reply.prompt_tokens});
          } else {
            outbox->push(Refused{tag, reply.ticket.error()});
          }
        },
        [this, tag = what.tag](caf::error&) {
          outbox->push(Refused{tag, engine_gone()});
        });
  }

  // The reply is ignored, because the terminal output of the request still follows and is the answer.
  void cancel(const Cancel& what) {
    request(
        self, what.router, CancelRequest{sink(), what.tag}, [](const CancelReply&) {}, [](caf::error&) {});
  }

  template <class Reply, class Message>
  void ask_for(const SendQuery& what, const Message& message) {
    request(
        self, what.router, message,
        [this, tag = what.tag](const Reply& reply) {
          outbox->push(QueryAnswered{tag, to_answer(reply)});
        },
        [this, tag = what.tag](caf::error&) {
          outbox->push(QueryAnswered{tag, engine_gone()});
        });
  }

  void ask(const SendQuery& what, const SharedAdapterChange& change) {
    const auto on_answer = [box = outbox, tag = what.tag, change](const Status& status) {
      box->push(QueryAnswered{tag, status ? Answer(AdapterChanged{change}) : Answer(client_error(status.error()))});
    };
    auto& system = self->home_system();
    const auto& [id, name, path] = change->adapter;
    if (change->kind == AdapterChange::Kind::add) {
      change_adapters(system, what.router, AddAdapter{name, path}, change, on_answer);
    } else {
      change_adapters(system, what.router, RemoveAdapter{name}, change, on_answer);
    }
  }
  void ask(const SendQuery& what, const TokenizeRequest& query) { ask_for<TokenizeReply>(what, query); }
  void ask(const SendQuery& what, const DetokenizeRequest& query) { ask_for<DetokenizeReply>(what, query); }
  void ask(const SendQuery& what, const GetModelInfo& query) { ask_for<ModelInfo>(what, query); }
  void ask(const SendQuery& what, const GetStats& query) { ask_for<EngineStats>(what, query); }
  void ask(const SendQuery& what, const ListRequests& query) { ask_for<RequestList>(what, query); }
  void ask(const SendQuery& what, const AbortRequest& query) { ask_for<CancelReply>(what, query); }
  void ask(const SendQuery& what, const ResetPrefixCache& query) { ask_for<PrefixCacheReset>(what, query); }
  void ask(const SendQuery& what, const DrainReplica& query) { ask_for<ReplicaDrained>(what, query); }
  void ask(const SendQuery& what, const MigrateRequest& query) { ask_for<RequestMigrated>(what, query); }
  void ask(const SendQuery& what, const StartReplica& query) { ask_for<ReplicaStarted>(what, query); }
  void ask(const SendQuery& what, const GetMetrics& query) { ask_for<metrics::EngineMetrics>(what, query); }
  void ask(const SendQuery& what, const GetView& query) { ask_for<view::EngineView>(what, query); }
};

SessionActor::behavior_type session(SessionActor::stateful_pointer<SessionState> self,
                                    const std::shared_ptr<Outbox<Event>>& outbox) {
  auto& state = state_of(self);
  state.self = self;
  state.outbox = outbox;
  return {
      [self](OutputBatch& batch) { state_of(self).outbox->push(std::move(batch)); },
      [self](const Submit& what) { state_of(self).submit(what); },
      [self](const Cancel& what) { state_of(self).cancel(what); },
      [self](const SendQuery& what) {
        std::visit([&](const auto& query) { state_of(self).ask(what, query); }, what.query);
      },
      [self](const Flush&) { state_of(self).outbox->push(FlushMark{}); },
      [](const AfterSent& message) { message.what(); },
  };
}

}  // namespace

Error session_failure() {
  return {ErrorCode::internal, "the server failed on this request"};
}

Session::Session(boost::asio::io_context& io, caf::actor_system& system, OnEvents on_events)
    : system_(system), outbox_(std::make_shared<Outbox<Event>>(io, std::move(on_events))) {}

const SessionActor& Session::actor() {
  if (actor_) return actor_;
  actor_ = system_.spawn(session, outbox_);
  // Has no effect after close(), because the outbox is closed then.
  when_ended(actor_, [outbox = outbox_] { retry_on_bad_alloc([&] { outbox->push(SessionFailed{}); }); });
  return actor_;
}

void Session::submit(const RequestRouterActor& router, std::uint64_t tag,
                     std::shared_ptr<const GenerateRequest> request) {
  if (!closed_) send_anonymously(actor(), Submit{router, tag, std::move(request)});
}

void Session::cancel(const RequestRouterActor& router, std::uint64_t tag) {
  if (!closed_) send_anonymously(actor(), Cancel{router, tag});
}

void Session::ask(const RequestRouterActor& router, std::uint64_t tag, Query query) {
  if (!closed_) send_anonymously(actor(), SendQuery{router, tag, std::move(query)});
}

void Session::flush() {
  if (!closed_) send_anonymously(actor(), Flush{});
}

void Session::after_sent(std::function<void()> what) {
  if (!closed_) send_anonymously(actor(), AfterSent{std::move(what)});
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  outbox_->close();
  if (actor_) end_now(actor_);
  actor_ = SessionActor{};
}

void init_actor_types() {
#ifdef CAF_VERSION_MAJOR
  caf::init_global_meta_objects<caf::id_block::pagoda>();
  caf::init_global_meta_objects<caf::id_block::pagoda_pool>();
  caf::init_global_meta_objects<caf::id_block::pagoda_serving>();
  caf::core::init_global_meta_objects();
#endif
}

}  // namespace pagoda::serving
