#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"
#include "engine/routing/tokenizer_queue.hpp"

namespace pagoda::actors {
namespace {

/// Drives RouterCore and TokenizerQueue; knows each live request's sink and tag.
struct RequestRouterState {
  RequestRouterState() {}

  /// A request whose prompt is not tokenized yet.
  struct TextRequest {
    std::shared_ptr<const GenerateRequest> request;
    caf::typed_response_promise<SubmitReply> promise;
    routing::TokenizerQueue::JobId job = 0;
  };
  struct LiveRequest {
    SinkActor sink;
    std::uint64_t tag = 0;
    TimeUs arrival_us = 0;
    std::optional<TextRequest> text;  ///< absent: it is in the engine
  };

  std::unique_ptr<routing::RouterCore> core;
  ModelInfo info;
  TimeUs started_us = now_us();
  TokenizerActor tokenizer;
  std::vector<SchedulerActor> schedulers;  ///< by replica; one today
  OutputProcessorActor outputs;
  std::unique_ptr<routing::TokenizerQueue> tokenizer_queue;
  std::unordered_map<routing::TokenizerQueue::JobId, std::function<void()>> tokenizer_jobs;  ///< waiting: how to start
  std::unordered_map<RequestId, LiveRequest> live;
  std::unordered_map<caf::actor_id, std::unordered_map<std::uint64_t, RequestId>> of_sink;  ///< tag -> request
  std::unordered_set<caf::actor_id> watched_clients;
  std::vector<caf::typed_response_promise<Drained>> draining;
  std::int64_t aborted_by_drain = 0;
  std::int64_t aborted_before_start = 0;  ///< the engine's own counters do not know them
  std::optional<Error> failure;           ///< why the engine has ended; from then on this actor only refuses
  trace::SharedTrace trace;
};

using Self = RequestRouterActor::stateful_pointer<RequestRouterState>;
const SchedulerActor& scheduler_of(const RequestRouterState& state, RequestId id) {
  return state.schedulers[static_cast<std::size_t>(state.core->replica_of(id))];
}

using SubmitPromise = caf::typed_response_promise<SubmitReply>;

void forget(RequestRouterState& state, RequestId id) {
  const auto found = state.live.find(id);
  if (found == state.live.end()) return;
  const auto sink = state.of_sink.find(found->second.sink.id());
  if (sink != state.of_sink.end()) {
    sink->second.erase(found->second.tag);
    if (sink->second.empty()) state.of_sink.erase(sink);
  }
  state.live.erase(found);
}

/// Behind the last outputs: who waits for a drain may then end the sinks. A drain that the engine did not outlive has
/// failed.
void answer_drains_when_empty(Self self) {
  auto& state = state_of(self);
  if (!state.live.empty() || state.draining.empty()) return;
  auto answer = [self, promises = std::exchange(state.draining, {})]() mutable {
    const auto& ended = state_of(self);
    for (auto& promise : promises) {
      if (ended.failure) {
        deliver(promise, caf::make_error(caf::sec::runtime_error, ended.failure->message));
      } else {
        deliver(promise, Drained{ended.aborted_by_drain});
      }
    }
  };
  pagoda::actors::request(
      self, state.outputs, FlushOutputs{}, [answer](const OutputsFlushed&) mutable { answer(); },
      [answer](caf::error&) mutable { answer(); });
}

/// What an ask gets whose answer will not come.
Error no_answer(const RequestRouterState& state) {
  return state.failure.value_or(Error{ErrorCode::internal, "the tokenizer has ended", {}, -1});
}

/// Gives the tokenizer what it may have now.
void feed_tokenizer(Self self) {
  auto& state = state_of(self);
  if (state.failure) return;  // whose jobs have been given away
  while (const auto job = state.tokenizer_queue->next()) state.tokenizer_jobs.extract(*job).mapped()();
}

/// Sends `message` to the tokenizer when it is `client`'s turn. Errors: queue_full, or why the engine failed.
template <class Answer, class Message>
Result<routing::TokenizerQueue::JobId> ask_tokenizer(Self self, caf::actor_id client, std::size_t text_bytes,
                                                     Message message, std::function<void(const Answer&)> on_answer) {
  auto& state = state_of(self);
  if (state.failure) return fail(*state.failure);
  const auto job = state.tokenizer_queue->add(client, static_cast<std::int64_t>(text_bytes));
  if (!job) return job;
  const auto start = [self, id = *job, message = std::move(message), on_answer = std::move(on_answer)] {
    pagoda::actors::request(
        self, state_of(self).tokenizer, message,
        [self, id, on_answer](const Answer& answer) {
          state_of(self).tokenizer_queue->finished(id);
          feed_tokenizer(self);
          on_answer(answer);
        },
        [self, on_answer](caf::error&) { on_answer(Answer{fail(no_answer(state_of(self)))}); });
  };
  state.tokenizer_jobs.emplace(*job, start);
  feed_tokenizer(self);
  return job;
}

/// The request ends at once, wherever it is.
void abort(Self self, RequestId id) {
  auto& state = state_of(self);
  auto& request = state.live.at(id);
  if (!request.text) {
    send(self, scheduler_of(state, id), AbortGroup{id});
    return;
  }
  auto text = std::move(*request.text);
  state.tokenizer_queue->take_back(text.job);
  state.tokenizer_jobs.erase(text.job);
  ++state.aborted_before_start;
  auto result = state.core->aborted_before_start(id, *text.request, request.arrival_us, now_us());
  OutputBatch batch{{RequestOutput{id, request.tag, {}, std::move(result), std::nullopt}}};
  const SinkActor sink = request.sink;
  forget(state, id);
  deliver(text.promise, SubmitReply{id});
  send(self, sink, std::move(batch));
  answer_drains_when_empty(self);
}

/// The prompt's ids are known: the request enters the engine, or is refused after all.
SubmitReply enter_engine(Self self, RequestId id, const GenerateRequest& request, Result<TokenIds> prompt) {
  auto& state = state_of(self);
  auto& live = state.live.at(id);
  const TraceSpan span(state.trace, trace::Row::router, "admit");
  auto spec = state.core->prompt_encoded(id, request, live.tag, std::move(prompt), live.arrival_us);
  if (!spec) {
    forget(state, id);
    answer_drains_when_empty(self);
    return {fail(spec.error())};
  }
  span.end({arg("request", id), arg("prompt_tokens", (*spec)->prompt->size())});
  const SchedulerActor& scheduler = scheduler_of(state, id);
  send(self, state.outputs, OpenOutput{*spec, live.sink, scheduler});  // before anything the scheduler can cause
  send(self, scheduler, AddGroup{*spec});
  return {id};
}

void on_prompt_encoded(Self self, RequestId id, const Result<TokenIds>& prompt) {
  auto& state = state_of(self);
  const auto found = state.live.find(id);
  if (found == state.live.end()) return;  // aborted meanwhile
  auto text = std::move(*found->second.text);
  found->second.text.reset();
  deliver(text.promise, enter_engine(self, id, *text.request, prompt));
}

/// Tells the router when the client ends.
template <class Handle>
void watch_client(Self self, const Handle& client) {
  const auto address = caf::actor_cast<caf::actor_addr>(client);
  if (!state_of(self).watched_clients.insert(address.id()).second) return;
  const auto me = caf::actor_cast<caf::actor_addr>(self);
  when_ended(client, [me, address] {
    if (const auto router = caf::actor_cast<RequestRouterActor>(me)) send_anonymously(router, SinkGone{address});
  });
}

void submit(Self self, const SubmitRequest& message, SubmitPromise& promise) {
  auto& state = state_of(self);
  const auto& request = message.request;
  const auto client = message.sink.id();
  const auto tags = state.of_sink.find(client);
  if (tags != state.of_sink.end() && tags->second.count(message.tag) > 0) {
    deliver(promise, SubmitReply{fail(ErrorCode::duplicate_id, "the sink has a live request with this tag")});
    return;
  }
  const TraceSpan span(state.trace, trace::Row::router, "submit");
  const auto submitted = state.core->submit(*request);
  span.end({arg("request", submitted ? *submitted : 0)});
  if (!submitted) {
    deliver(promise, SubmitReply{fail(submitted.error())});
    return;
  }
  const RequestId id = *submitted;
  auto& live =
      state.live.emplace(id, RequestRouterState::LiveRequest{message.sink, message.tag, now_us(), {}}).first->second;
  state.of_sink[client].emplace(message.tag, id);
  watch_client(self, message.sink);
  if (request->prompt_token_ids) {
    TokenIds ids(request->prompt_token_ids->begin(), request->prompt_token_ids->end());
    deliver(promise, enter_engine(self, id, *request, std::move(ids)));
    return;
  }
  const auto job = ask_tokenizer<TokenizeReply>(
      self, client, request->prompt->size(), EncodePrompt{request},
      [self, id](const TokenizeReply& answer) { on_prompt_encoded(self, id, answer.token_ids); });
  if (!job) {
    state.core->closed(id);
    forget(state, id);
    deliver(promise, SubmitReply{fail(job.error())});
    return;
  }
  live.text.emplace(RequestRouterState::TextRequest{request, promise, *job});
}

void abort_everything(Self self) {
  auto& state = state_of(self);
  std::vector<RequestId> ids;
  for (const auto& [id, request] : state.live) ids.push_back(id);
  state.aborted_by_drain += static_cast<std::int64_t>(ids.size());
  for (const RequestId id : ids) abort(self, id);
}

/// A text or ids of an op, to be answered when it is the asker's turn.
template <class Answer, class Question>
caf::typed_response_promise<Answer> answer_from_tokenizer(Self self, const Question& question, std::size_t bytes) {
  auto promise = self->template make_response_promise<Answer>();
  const auto& asker = self->current_sender();
  if (asker) watch_client(self, asker);
  const auto job = ask_tokenizer<Answer>(self, asker ? asker->id() : caf::actor_id{}, bytes, question,
                                         [promise](const Answer& answer) mutable { deliver(promise, answer); });
  if (!job) deliver(promise, Answer{fail(job.error())});
  return promise;
}

void on_client_gone(Self self, caf::actor_id client) {
  auto& state = state_of(self);
  state.watched_clients.erase(client);
  if (const auto tags = state.of_sink.find(client); tags != state.of_sink.end()) {
    const auto requests = tags->second;
    for (const auto& [tag, id] : requests) abort(self, id);
  }
  for (const auto job : state.tokenizer_queue->forget(client)) state.tokenizer_jobs.erase(job);
}

EngineStats with_routers_own(const RequestRouterState& state, EngineStats stats) {
  stats.uptime_s = static_cast<double>(now_us() - state.started_us) / 1e6;
  if (state.failure) {
    stats.health = state.failure->message;
    return stats;
  }
  stats.requests_aborted_total += state.aborted_before_start;
  stats.requests_waiting +=
      std::ranges::count_if(state.live, [](const auto& entry) { return entry.second.text.has_value(); });
  return stats;
}

caf::typed_response_promise<EngineStats> answer_stats(Self self, const GetStats& message) {
  auto& state = state_of(self);
  auto promise = self->make_response_promise<EngineStats>();
  if (state.failure) {
    deliver(promise, with_routers_own(state, EngineStats{}));
    return promise;
  }
  pagoda::actors::request(
      self, state.schedulers.front(), message,
      [self, promise](const EngineStats& stats) mutable { deliver(promise, with_routers_own(state_of(self), stats)); },
      [self, promise](caf::error& reason) mutable {
        const auto& ended = state_of(self);
        if (ended.failure) {
          deliver(promise, with_routers_own(ended, EngineStats{}));
        } else {
          deliver(promise, std::move(reason));
        }
      });
  return promise;
}

/// Requests whose prompts wait for the tokenizer end here, those in the engine by the output processor, which hears of
/// it behind the last request that it was sent.
void on_engine_failed(Self self, const EngineFailed& failed) {
  auto& state = state_of(self);
  state.failure = failed.error;
  state.core->engine_failed(failed.error);
  std::vector<RequestId> texts;
  for (const auto& [id, request] : state.live) {
    if (request.text) texts.push_back(id);
  }
  for (const RequestId id : texts) {
    auto text = std::move(*state.live.at(id).text);
    state.tokenizer_queue->take_back(text.job);
    state.tokenizer_jobs.erase(text.job);
    state.core->closed(id);
    forget(state, id);
    deliver(text.promise, SubmitReply{fail(failed.error)});
  }
  for (auto& [job, start] : std::exchange(state.tokenizer_jobs, {})) start();  // each is told that nobody answers
  send(self, state.outputs, failed);
  answer_drains_when_empty(self);
}

RequestRouterActor::behavior_type behavior(Self self, const routing::AdmissionLimits& limits, const ModelInfo& info,
                                           const TokenizerActor& tokenizer,
                                           const std::vector<SchedulerActor>& schedulers,
                                           const OutputProcessorActor& outputs, const trace::SharedTrace& trace) {
  auto& initial = state_of(self);
  initial.core = std::make_unique<routing::RouterCore>(limits);
  initial.tokenizer_queue = std::make_unique<routing::TokenizerQueue>(limits.max_queued_prompt_bytes);
  initial.info = info;
  initial.tokenizer = tokenizer;
  PAGODA_ASSERT(std::ssize(schedulers) == limits.num_replicas && limits.num_replicas == 1, "one replica is served");
  initial.schedulers = schedulers;
  initial.outputs = outputs;
  initial.trace = trace;
  return {
      [self](const SubmitRequest& message) {
        auto promise = self->make_response_promise<SubmitReply>();
        submit(self, message, promise);
        return promise;
      },
      [self](const CancelRequest& message) -> CancelReply {
        auto& state = state_of(self);
        const auto tags = state.of_sink.find(message.sink.id());
        if (tags == state.of_sink.end()) return reply(CancelReply{false});
        const auto id = tags->second.find(message.tag);
        if (id == tags->second.end()) return reply(CancelReply{false});
        abort(self, id->second);
        return reply(CancelReply{true});
      },
      [self](const GetStats& message) { return answer_stats(self, message); },
      [self](const GetModelInfo&) { return reply(state_of(self).info); },
      [self](const TokenizeRequest& message) {
        return answer_from_tokenizer<TokenizeReply>(self, message, message.text.size());
      },
      [self](const DetokenizeRequest& message) {
        return answer_from_tokenizer<DetokenizeReply>(self, message, message.token_ids.size() * sizeof(TokenId));
      },
      [self](const Drain& message) {
        auto& state = state_of(self);
        auto promise = self->make_response_promise<Drained>();
        state.core->start_draining();
        state.draining.push_back(promise);
        answer_drains_when_empty(self);
        if (!state.live.empty()) {
          send_later(self, caf::actor_cast<RequestRouterActor>(self), std::chrono::milliseconds(message.timeout_ms),
                     DrainTimeout{});
        }
        return promise;
      },
      [self](const SinkGone& message) { on_client_gone(self, message.sink.id()); },
      [self](const DrainTimeout&) { abort_everything(self); },
      [self](const RequestClosed& message) {
        auto& state = state_of(self);
        state.core->closed(message.request);
        forget(state, message.request);
        answer_drains_when_empty(self);
      },
      [self](const EngineFailed& failed) { on_engine_failed(self, failed); },
  };
}

}  // namespace

RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, std::vector<SchedulerActor> schedulers,
                                        OutputProcessorActor outputs, trace::SharedTrace trace) {
  return system.spawn(behavior, limits, std::move(info), std::move(tokenizer), std::move(schedulers),
                      std::move(outputs), std::move(trace));
}

}  // namespace pagoda::actors
