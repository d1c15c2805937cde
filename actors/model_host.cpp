#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "actors/clock.hpp"
#include "actors/model_pool.hpp"
#include "actors/watch.hpp"

namespace pagoda::actors {
namespace {

using model_pool::ArrivalQueue;
using SubmitPromise = caf::typed_response_promise<SubmitReply>;

/// A message that waits until the model is loaded. Then `go` sends it to the router, or `refuse` answers with an error.
struct Waiting {
  std::function<void()> go;
  std::function<void(Error)> refuse;
  std::shared_ptr<const GenerateRequest> request = nullptr;  ///< the request, if this one may be cancelled
  SubmitPromise promise = {};
  SinkActor sink = {};
};

/// The host has work while a request of its engine is live or a question is not answered. The router's Idle, which the
/// host awaits after the last request that it passed on, shows that no request is live.
struct ModelHostState {
  ModelHostState() {}

  model_pool::ModelIndex index = 0;
  PoolModel model;
  ModelPoolActor pool;
  ArrivalQueue line{{}, {}};
  std::unordered_map<ArrivalQueue::Ticket, Waiting> waiting;
  std::unordered_set<caf::actor_id> watched_clients;
  std::optional<TimeUs> next_timer;  ///< time of the earliest WaitOver that is on its way

  RequestRouterActor router;       ///< router of the engine; none: the model is not loaded
  std::uint64_t engine_epoch = 0;  ///< number of the loaded engine; answers of earlier engines are ignored
  bool is_wanted = false;          ///< whether the pool knows that something waits
  /// Keep-alive time of the next engine, for when it serves the messages that wait.
  std::optional<TimeUs> keep_alive_us;
  bool is_draining = false;
  bool is_busy = false;  ///< whether it has work, as the pool knows it
  bool awaits_idle = false;
  std::uint64_t requests = 0;  ///< number of requests that were passed on to the engine
  std::int64_t questions = 0;  ///< number of questions that were passed on to the engine and are not answered yet
  std::optional<caf::typed_response_promise<ModelReleased>> leaving;

  bool serves() const { return router && !leaving; }
};

using Self = ModelHostActor::stateful_pointer<ModelHostState>;

void notify_pool(Self self, ModelUse::Kind kind) {
  auto& state = state_of(self);
  send(self, state.pool, ModelUse{state.index, kind});
}

void send_keep_alive(Self self, TimeUs keep_alive_us) {
  auto& state = state_of(self);
  send(self, state.pool, SetKeepAlive{state.index, keep_alive_us});
}

// -- the line of waiting messages

void look_at_line(Self self) {
  auto& state = state_of(self);
  state.model.residency->waiting = static_cast<std::int64_t>(state.line.size());
  if (state.line.empty()) state.keep_alive_us.reset();
  if (state.line.empty() && std::exchange(state.is_wanted, false)) notify_pool(self, ModelUse::Kind::unwanted);
  const auto next = state.line.next_expiry();
  if (!next || (state.next_timer && *state.next_timer <= *next)) return;
  state.next_timer = next;
  constexpr TimeUs kUsPerMs = 1000;
  const auto wait = std::chrono::milliseconds(std::max<TimeUs>(0, *next - now_us() + kUsPerMs - 1) / kUsPerMs);
  send_later(self, caf::actor_cast<ModelHostActor>(self), wait, WaitOver{});
}

void want_model(Self self) {
  auto& state = state_of(self);
  if (state.line.empty() || state.router || std::exchange(state.is_wanted, true)) return;
  notify_pool(self, ModelUse::Kind::wanted);
}

void wait(Self self, const ArrivalQueue::Arrival& arrival, Waiting what) {
  auto& state = state_of(self);
  if (state.is_draining) return what.refuse({ErrorCode::shutting_down, "the server is shutting down"});
  const auto ticket = state.line.add(arrival, now_us());
  if (!ticket) return what.refuse(ticket.error());
  state.waiting.emplace(*ticket, std::move(what));
  want_model(self);
  look_at_line(self);
}

void refuse_all(Self self, const Error& error) {
  auto& state = state_of(self);
  while (const auto ticket = state.line.take()) state.waiting.extract(*ticket).mapped().refuse(error);
  state.model.residency->waiting = 0;
  state.keep_alive_us.reset();
}

template <class Handle>
void watch_client(Self self, const Handle& client) {
  const auto id = caf::actor_cast<caf::actor_addr>(client).id();
  if (state_of(self).watched_clients.insert(id).second) {
    watch<SinkGone>(caf::actor_cast<RequestRouterActor>(self), client);
  }
}

// -- the work of the engine

void look_for_end_of_work(Self self) {
  auto& state = state_of(self);
  if (!state.is_busy || state.awaits_idle || state.questions > 0) return;
  state.is_busy = false;
  if (state.leaving) {
    auto promise = *std::exchange(state.leaving, std::nullopt);
    state.router = RequestRouterActor{};
    ++state.engine_epoch;
    deliver(promise, ModelReleased{true});
    want_model(self);  // after the answer
  } else {
    notify_pool(self, ModelUse::Kind::idle);
  }
}

void await_idle(Self self) {
  auto& state = state_of(self);
  if (std::exchange(state.awaits_idle, true)) return;
  const auto on_idle = [self, engine_epoch = state.engine_epoch, seen = state.requests](const Idle&) {
    auto& now = state_of(self);
    if (now.engine_epoch != engine_epoch) return;
    now.awaits_idle = false;
    if (now.requests != seen) return await_idle(self);
    look_for_end_of_work(self);
  };
  pagoda::actors::request(self, state.router, AwaitIdle{}, on_idle,
                          [](caf::error&) {});  // the pool reports the end of the engine
}

void begin_work(Self self) {
  if (!std::exchange(state_of(self).is_busy, true)) notify_pool(self, ModelUse::Kind::busy);
}

void pass_on(Self self, const SubmitRequest& message, SubmitPromise promise) {
  auto& state = state_of(self);
  begin_work(self);
  ++state.requests;
  pagoda::actors::request(
      self, state.router, message, [promise](const SubmitReply& answer) mutable { deliver(promise, answer); },
      [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
  await_idle(self);
}

/// Passes on a question that needs the engine's tokenizer.
template <class Answer, class Question>
void pass_on(Self self, const Question& question, caf::typed_response_promise<Answer> promise) {
  auto& state = state_of(self);
  begin_work(self);
  ++state.questions;
  const auto answered = [self, engine_epoch = state.engine_epoch] {
    auto& now = state_of(self);
    if (now.engine_epoch != engine_epoch) return;
    --now.questions;
    look_for_end_of_work(self);
  };
  pagoda::actors::request(
      self, state.router, question,
      [promise, answered](const Answer& answer) mutable {
        deliver(promise, answer);
        answered();
      },
      [promise, answered](caf::error& reason) mutable {
        deliver(promise, std::move(reason));
        answered();
      });
}

std::int64_t bytes_of(const GenerateRequest& request) {
  std::int64_t bytes = request.prompt ? std::ssize(*request.prompt) : 0;
  if (request.prompt_token_ids) bytes += std::ssize(*request.prompt_token_ids) * std::int64_t{sizeof(std::int64_t)};
  for (const std::string& word : request.sampling.bad_words) bytes += std::ssize(word);
  if (const auto& ids = request.sampling.allowed_token_ids) {
    bytes += std::ssize(*ids) * std::int64_t{sizeof(std::int64_t)};
  }
  return bytes + std::ssize(request.prompt_literals) * std::int64_t{sizeof(ByteRange)};
}

SubmitPromise submit(Self self, const SubmitRequest& message) {
  auto promise = self->make_response_promise<SubmitReply>();
  if (state_of(self).serves()) {
    pass_on(self, message, promise);
    return promise;
  }
  ArrivalQueue::Arrival arrival{.client = message.sink.id(), .tag = message.tag, .bytes = bytes_of(*message.request)};
  constexpr TimeUs kUsPerMs = 1000;
  const auto timeout_ms = message.request->timeout_ms.value_or(state_of(self).model.default_timeout_ms);
  if (timeout_ms > 0) arrival.time_us = kUsPerMs * timeout_ms;
  watch_client(self, message.sink);
  wait(self, arrival,
       {.go =
            [self, message, promise, since = now_us()] {
              SubmitRequest waited = message;
              waited.waited_us = now_us() - since;
              pass_on(self, waited, promise);
            },
        .refuse = [promise](Error error) mutable { deliver(promise, SubmitReply{fail(std::move(error))}); },
        .request = message.request,
        .promise = promise,
        .sink = message.sink});
  return promise;
}

template <class Answer, class Question>
caf::typed_response_promise<Answer> ask_engine(Self self, const Question& question, std::size_t num_bytes) {
  auto promise = self->template make_response_promise<Answer>();
  if (state_of(self).serves()) {
    pass_on(self, question, promise);
    return promise;
  }
  const auto asker = self->current_sender();
  if (asker) watch_client(self, asker);
  wait(self, {.client = asker ? asker->id() : caf::actor_id{}, .bytes = static_cast<std::int64_t>(num_bytes)},
       {.go = [self, question, promise] { pass_on(self, question, promise); },
        .refuse = [promise](Error error) mutable { deliver(promise, Answer{fail(std::move(error))}); }});
  return promise;
}

/// Ends a request that was cancelled before it began: sends as many outputs as it asked for, without tokens.
void end_cancelled(Self self, Waiting& cancelled, std::uint64_t tag) {
  RequestResult result;
  const auto most = static_cast<std::int32_t>(std::max<std::int64_t>(1, state_of(self).model.info.max_num_seqs));
  const auto num_outputs = static_cast<std::int32_t>(std::clamp<std::int64_t>(cancelled.request->sampling.n, 1, most));
  for (std::int32_t index = 0; index < num_outputs; ++index) result.outputs.emplace_back().index = index;
  deliver(cancelled.promise, SubmitReply{RequestId{0}});
  OutputBatch batch;
  batch.outputs.push_back({.request_id = 0, .tag = tag, .deltas = {}, .done = std::move(result), .error = {}});
  send(self, cancelled.sink, std::move(batch));
}

/// Returns the engine's answer, or `otherwise` when there is no engine.
template <class Answer, class Message>
caf::typed_response_promise<Answer> answer_of(Self self, const Message& message, Answer otherwise) {
  auto promise = self->template make_response_promise<Answer>();
  const auto& router = state_of(self).router;
  if (!router) {
    deliver(promise, std::move(otherwise));
    return promise;
  }
  pagoda::actors::request(
      self, router, message, [promise](Answer& answer) mutable { deliver(promise, std::move(answer)); },
      [promise, otherwise](caf::error&) mutable { deliver(promise, std::move(otherwise)); });
  return promise;
}

/// Returns the stats of a model that is not loaded. Requests may still wait for it.
EngineStats stats_without_engine(const ModelHostState& state) {
  EngineStats stats;
  stats.requests_waiting = static_cast<std::int64_t>(state.line.size());
  return stats;
}

bool cancel_waiting(Self self, const CancelRequest& message) {
  auto& state = state_of(self);
  const auto ticket = state.line.cancel(message.sink.id(), message.tag);
  if (!ticket) return false;
  auto cancelled = std::move(state.waiting.extract(*ticket).mapped());
  end_cancelled(self, cancelled, message.tag);
  look_at_line(self);
  return true;
}

caf::typed_response_promise<Drained> drain(Self self, const Drain& message) {
  auto& state = state_of(self);
  state.is_draining = true;
  refuse_all(self, {ErrorCode::shutting_down, "the server is shutting down"});
  look_at_line(self);
  return answer_of(self, message, Drained{});
}

// -- messages of the pool

void serve(Self self, const RequestRouterActor& router) {
  auto& state = state_of(self);
  state.router = router;
  ++state.engine_epoch;
  state.is_wanted = state.awaits_idle = false;
  state.questions = 0;
  state.is_busy = true;  // the pool counts it as busy
  if (state.is_draining) send_anonymously(router, Drain{Drain::kNoTimeout});
  if (state.keep_alive_us) send_keep_alive(self, *std::exchange(state.keep_alive_us, std::nullopt));
  while (const auto ticket = state.line.take()) state.waiting.extract(*ticket).mapped().go();
  look_at_line(self);
  look_for_end_of_work(self);
}

void refuse(Self self, const Error& error) {
  state_of(self).is_wanted = false;
  refuse_all(self, error);
}

void forget_engine(Self self) {
  auto& state = state_of(self);
  state.router = RequestRouterActor{};
  ++state.engine_epoch;
  state.is_busy = state.awaits_idle = false;
  state.questions = 0;
  if (state.leaving) {
    auto promise = *std::exchange(state.leaving, std::nullopt);
    deliver(promise, ModelReleased{true});
  }
  want_model(self);
}

caf::typed_response_promise<ModelReleased> release(Self self, const ReleaseModel& message) {
  auto& state = state_of(self);
  auto promise = self->make_response_promise<ModelReleased>();
  if (state.is_busy && message.drain) {
    state.leaving = promise;
  } else if (state.is_busy) {
    deliver(promise, ModelReleased{false});
  } else {
    state.router = RequestRouterActor{};
    ++state.engine_epoch;
    deliver(promise, ModelReleased{true});
  }
  return promise;
}

Error not_loaded(const char* param) {
  return {ErrorCode::invalid_request, "the model is not loaded", param};
}

/// Applies the keep-alive time. While messages wait, keeps it for the later engine on which they will run.
void keep_alive(Self self, TimeUs keep_alive_us) {
  auto& state = state_of(self);
  if (state.serves() || state.line.empty()) return send_keep_alive(self, keep_alive_us);
  state.keep_alive_us = keep_alive_us;
}

void on_client_gone(Self self, caf::actor_id client) {
  auto& state = state_of(self);
  state.watched_clients.erase(client);
  for (const auto ticket : state.line.client_gone(client)) state.waiting.erase(ticket);
  look_at_line(self);
}

void on_wait_over(Self self) {
  auto& state = state_of(self);
  state.next_timer.reset();
  for (auto& expired : state.line.expire(now_us())) {
    state.waiting.extract(expired.ticket).mapped().refuse(std::move(expired.error));
  }
  look_at_line(self);
}

ModelHostActor::behavior_type behavior(Self self) {
  return {
      [self](const SubmitRequest& message) { return submit(self, message); },
      [self](const CancelRequest& message) {
        if (!cancel_waiting(self, message)) return answer_of(self, message, CancelReply{});
        auto promise = self->make_response_promise<CancelReply>();
        deliver(promise, CancelReply{true});
        return promise;
      },
      [self](const ListRequests& message) { return answer_of(self, message, RequestList{}); },
      [self](const AbortRequest& message) { return answer_of(self, message, CancelReply{}); },
      [self](const ResetPrefixCache& message) { return answer_of(self, message, PrefixCacheReset{}); },
      [self](const AddAdapter& message) {
        return answer_of(self, message, AdapterReply{fail(not_loaded("lora_name"))});
      },
      [self](const RemoveAdapter& message) {
        return answer_of(self, message, AdapterReply{fail(not_loaded("lora_name"))});
      },
      [self](const ListAdapters& message) { return answer_of(self, message, AdapterList{}); },
      [self](const GetStats& message) { return answer_of(self, message, stats_without_engine(state_of(self))); },
      [self](const GetMetrics& message) {
        return answer_of(self, message, metrics::EngineMetrics{.stats = stats_without_engine(state_of(self))});
      },
      [self](const GetView& message) {
        view::EngineView view;
        view.now_us = now_us();
        view.stats = stats_without_engine(state_of(self));
        return answer_of(self, message, std::move(view));
      },
      [self](const GetModelInfo& message) { return answer_of(self, message, state_of(self).model.info); },
      [self](const TokenizeRequest& message) {
        const std::size_t num_bytes = message.text.size() + message.literals.size() * sizeof(ByteRange);
        return ask_engine<TokenizeReply>(self, message, num_bytes);
      },
      [self](const DetokenizeRequest& message) {
        return ask_engine<DetokenizeReply>(self, message, message.token_ids.size() * sizeof(TokenId));
      },
      [self](const Drain& message) { return drain(self, message); },
      [self](const DrainReplica& message) {
        return answer_of(self, message, ReplicaDrained{fail(not_loaded("replica"))});
      },
      [self](const MigrateRequest& message) {
        return answer_of(self, message, RequestMigrated{fail(not_loaded("id"))});
      },
      [self](const StartReplica& message) {
        return answer_of(self, message, ReplicaStarted{fail(not_loaded("replica"))});
      },
      [self](const AwaitIdle& message) { return answer_of(self, message, Idle{}); },
      [self](const SinkGone& message) { on_client_gone(self, message.sink.id()); },
      [](const DrainTimeout&) {},
      [](const DeadlineDue&) {},
      [](const RequestClosed&) {},
      [](const ChildGone&) {},
      [](const ConnectRoot&) {},
      [](const ReplicaDown&) {},
      [](const EngineFailed&) {},
      [self](const ServeModel& message) { serve(self, message.router); },
      [self](const RefuseModel& message) { refuse(self, message.error); },
      [self](const ForgetEngine&) { forget_engine(self); },
      [self](const ReleaseModel& message) { return release(self, message); },
      [self](const WaitOver&) { on_wait_over(self); },
      [self](const SetKeepAlive& message) { keep_alive(self, message.keep_alive_us); },
  };
}

ModelHostActor::behavior_type model_host(Self self, model_pool::ModelIndex index, const PoolModel& model,
                                         const ModelPoolActor& pool) {
  auto& state = state_of(self);
  state.index = index;
  state.model = model;
  state.pool = pool;
  state.line = ArrivalQueue(model.name, model.line);
  return behavior(self);
}

}  // namespace

ModelHostActor spawn_model_host(caf::actor_system& system, model_pool::ModelIndex index, PoolModel model,
                                ModelPoolActor pool) {
  return system.spawn(model_host, index, std::move(model), std::move(pool));
}

}  // namespace pagoda::actors
