#include "io/json_lines/bridge.hpp"

#include <type_traits>

#include <boost/asio/post.hpp>

namespace pagoda::json_lines {

void Outbox::push(BridgeEvent event) {
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) return;
  events_.push_back(std::move(event));
  if (events_.size() > 1) return;  // a hand-over is on its way
  boost::asio::post(*io_, [self = shared_from_this()] { self->hand_over(); });
}

void Outbox::close() {
  {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
    events_.clear();
  }
  deliver_ = nullptr;
}

void Outbox::hand_over() {
  std::vector<BridgeEvent> events;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
  }
  // The delivery may close this outbox, which drops deliver_: keep what runs alive.
  if (const auto deliver = deliver_) deliver(events);
}

namespace {

using namespace actors;

struct BridgeState {
  BridgeState() {}

  BridgeActor::pointer self = nullptr;
  RequestRouterActor router;
  std::shared_ptr<Outbox> outbox;

  static Error engine_gone() { return {ErrorCode::internal, "the engine does not answer"}; }

  SinkActor sink() const { return caf::actor_cast<SinkActor>(self); }

  void reply_error(const ClientId& id, const Error& error) {
    ReplyLine reply;
    append_error(reply.line, id, wire_error(error));
    outbox->push(std::move(reply));
  }

  /// Asks the router; `write(line, answer)` makes the answer's line.
  template <class Answer, class Question, class Write>
  void ask(const ClientId& id, Question question, Write write) {
    request(
        self, router, std::move(question),
        [this, write](const Answer& answer) {
          ReplyLine reply;
          write(reply.line, answer);
          outbox->push(std::move(reply));
        },
        [this, id](caf::error&) { reply_error(id, engine_gone()); });
  }

  void run(std::uint64_t tag, const GenerateOp& op) {
    request(
        self, router, SubmitRequest{op.request, sink(), tag},
        [this, tag](const SubmitReply& reply) {
          if (!reply.ticket) outbox->push(Refused{tag, reply.ticket.error()});
        },
        [this, tag](caf::error&) {
          outbox->push(Refused{tag, engine_gone()});
        });
  }

  // Found or not, the request's terminal output is the answer: it is live here, so its end is still to come.
  void run(std::uint64_t tag, const CancelOp&) {
    request(
        self, router, CancelRequest{sink(), tag}, [](const CancelReply&) {}, [](caf::error&) {});
  }

  void run(std::uint64_t, const TokenizeOp& op) {
    ask<TokenizeReply>(op.id, TokenizeRequest{op.text, op.add_special_tokens},
                       [id = op.id](std::string& line, const TokenizeReply& reply) {
                         if (reply.token_ids) {
                           append_tokens(line, id, *reply.token_ids);
                         } else {
                           append_error(line, id, wire_error(reply.token_ids.error()));
                         }
                       });
  }

  void run(std::uint64_t, const DetokenizeOp& op) {
    ask<DetokenizeReply>(op.id, DetokenizeRequest{op.token_ids, op.skip_special_tokens},
                         [id = op.id](std::string& line, const DetokenizeReply& reply) {
                           if (reply.text) {
                             append_text(line, id, *reply.text);
                           } else {
                             append_error(line, id, wire_error(reply.text.error()));
                           }
                         });
  }

  void run(std::uint64_t, const ModelOp& op) {
    ask<ModelInfo>(op.id, GetModelInfo{},
                   [id = op.id](std::string& line, const ModelInfo& model) { append_model(line, id, model); });
  }

  void run(std::uint64_t, const StatsOp& op) {
    ask<EngineStats>(op.id, GetStats{},
                     [id = op.id](std::string& line, const EngineStats& stats) { append_stats(line, id, stats); });
  }
};

template <class Op>
constexpr bool kIsForRouter = !std::is_same_v<Op, PingOp> && !std::is_same_v<Op, AuthOp>;

BridgeActor::behavior_type bridge(BridgeActor::stateful_pointer<BridgeState> self, const RequestRouterActor& router,
                                  const std::shared_ptr<Outbox>& outbox) {
  auto& state = state_of(self);
  state.self = self;
  state.router = router;
  state.outbox = outbox;
  return {
      [self](OutputBatch& batch) { state_of(self).outbox->push(std::move(batch)); },
      [self](const RunOp& run) {
        std::visit(
            [&](const auto& op) {
              if constexpr (kIsForRouter<std::decay_t<decltype(op)>>) state_of(self).run(run.tag, op);
            },
            run.message);
      },
      [self](const Flush&) { state_of(self).outbox->push(FlushMark{}); },
  };
}

}  // namespace

BridgeActor spawn_bridge(caf::actor_system& system, RequestRouterActor router, std::shared_ptr<Outbox> outbox) {
  return system.spawn(bridge, std::move(router), std::move(outbox));
}

}  // namespace pagoda::json_lines
