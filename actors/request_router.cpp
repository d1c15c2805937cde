#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"

namespace pagoda::actors {
namespace {

/// Drives RouterCore; knows each live request's sink and tag.
struct RequestRouterState {
  RequestRouterState() {}

  struct LiveRequest {
    SinkActor sink;
    std::uint64_t tag = 0;
    bool in_engine = false;  ///< false: its prompt is at the tokenizer
    bool cancelled = false;  ///< before it was in the engine
  };

  std::unique_ptr<routing::RouterCore> core;
  ModelInfo info;
  TimeUs started_us = now_us();
  TokenizerActor tokenizer;
  SchedulerActor scheduler;
  OutputProcessorActor outputs;
  std::unordered_map<RequestId, LiveRequest> live;
  std::unordered_map<caf::actor_id, std::unordered_map<std::uint64_t, RequestId>> of_sink;  ///< tag -> request
  std::unordered_set<caf::actor_id> watched_sinks;
  std::vector<caf::typed_response_promise<Drained>> draining;
  std::int64_t aborted_by_drain = 0;
  trace::SharedTrace trace;
};

using Self = RequestRouterActor::stateful_pointer<RequestRouterState>;
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

void answer_drains_when_empty(RequestRouterState& state) {
  if (!state.live.empty()) return;
  for (auto& promise : state.draining) deliver(promise, Drained{state.aborted_by_drain});
  state.draining.clear();
}

void abort(Self self, RequestId id) {
  auto& state = state_of(self);
  auto& request = state.live.at(id);
  if (request.in_engine) {
    send(self, state.scheduler, AbortGroup{id});
  } else {
    request.cancelled = true;
  }
}

/// The prompt's ids are known: the request enters the engine, or is refused after all.
SubmitReply enter_engine(Self self, RequestId id, const GenerateRequest& request, Result<TokenIds> prompt) {
  auto& state = state_of(self);
  auto& live = state.live.at(id);
  const TraceSpan span(state.trace, trace::Row::router, "admit");
  auto spec = state.core->prompt_encoded(id, request, live.tag, std::move(prompt), now_us());
  if (!spec) {
    forget(state, id);
    answer_drains_when_empty(state);
    return {fail(spec.error())};
  }
  span.end({arg("request", id), arg("prompt_tokens", (*spec)->prompt->size())});
  live.in_engine = true;
  const bool cancelled = live.cancelled;
  send(self, state.outputs, OpenOutput{*spec, live.sink});  // before anything the scheduler can cause
  send(self, state.scheduler, AddGroup{*spec});
  if (cancelled) send(self, state.scheduler, AbortGroup{id});
  return {id};
}

void submit(Self self, const SubmitRequest& message, SubmitPromise& promise) {
  auto& state = state_of(self);
  const auto& request = message.request;
  const auto tags = state.of_sink.find(message.sink.id());
  if (tags != state.of_sink.end() && tags->second.count(message.tag) > 0) {
    deliver(promise, SubmitReply{fail(ErrorCode::duplicate_id, "the sink has a live request with this tag")});
    return;
  }
  const TraceSpan span(state.trace, trace::Row::router, "submit");
  const auto id = state.core->submit(*request);
  span.end({arg("request", id ? *id : 0)});
  if (!id) {
    deliver(promise, SubmitReply{fail(id.error())});
    return;
  }
  state.live.emplace(*id, RequestRouterState::LiveRequest{message.sink, message.tag});
  state.of_sink[message.sink.id()].emplace(message.tag, *id);
  if (state.watched_sinks.insert(message.sink.id()).second) {
    const auto me = caf::actor_cast<caf::actor_addr>(self);
    when_ended(message.sink, [me, sink = message.sink.address()] {
      if (const auto router = caf::actor_cast<RequestRouterActor>(me)) send_anonymously(router, SinkGone{sink});
    });
  }
  if (request->prompt_token_ids) {
    TokenIds ids(request->prompt_token_ids->begin(), request->prompt_token_ids->end());
    deliver(promise, enter_engine(self, *id, *request, std::move(ids)));
    return;
  }
  pagoda::actors::request(
      self, state.tokenizer, EncodePrompt{request},
      [self, promise, id = *id, request](const TokenizeReply& answer) mutable {
        deliver(promise, enter_engine(self, id, *request, answer.token_ids));
      },
      [self](caf::error& reason) { self->quit(std::move(reason)); });
}

void abort_everything(Self self) {
  auto& state = state_of(self);
  for (const auto& [id, request] : state.live) {
    ++state.aborted_by_drain;
    abort(self, id);
  }
}

/// Passes a question on to another actor and its answer back.
template <class Answer, class Actor, class Question>
caf::typed_response_promise<Answer> forward(Self self, const Actor& receiver, const Question& question) {
  auto promise = self->template make_response_promise<Answer>();
  pagoda::actors::request(
      self, receiver, question, [promise](const Answer& answer) mutable { deliver(promise, answer); },
      [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
  return promise;
}

RequestRouterActor::behavior_type behavior(Self self, const routing::AdmissionLimits& limits, const ModelInfo& info,
                                           const TokenizerActor& tokenizer, const SchedulerActor& scheduler,
                                           const OutputProcessorActor& outputs, const trace::SharedTrace& trace) {
  auto& initial = state_of(self);
  initial.core = std::make_unique<routing::RouterCore>(limits);
  initial.info = info;
  initial.tokenizer = tokenizer;
  initial.scheduler = scheduler;
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
      [self](const GetStats& message) {
        auto promise = self->make_response_promise<EngineStats>();
        pagoda::actors::request(
            self, state_of(self).scheduler, message,
            [self, promise](EngineStats stats) mutable {
              stats.uptime_s = static_cast<double>(now_us() - state_of(self).started_us) / 1e6;
              deliver(promise, std::move(stats));
            },
            [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
        return promise;
      },
      [self](const GetModelInfo&) { return reply(state_of(self).info); },
      [self](const TokenizeRequest& message) {
        return forward<TokenizeReply>(self, state_of(self).tokenizer, message);
      },
      [self](const DetokenizeRequest& message) {
        return forward<DetokenizeReply>(self, state_of(self).tokenizer, message);
      },
      [self](const Drain& message) {
        auto& state = state_of(self);
        auto promise = self->make_response_promise<Drained>();
        state.core->start_draining();
        state.draining.push_back(promise);
        answer_drains_when_empty(state);
        if (!state.live.empty()) {
          send_later(self, caf::actor_cast<RequestRouterActor>(self), std::chrono::milliseconds(message.timeout_ms),
                     DrainTimeout{});
        }
        return promise;
      },
      [self](const SinkGone& message) {
        auto& state = state_of(self);
        state.watched_sinks.erase(message.sink.id());
        const auto tags = state.of_sink.find(message.sink.id());
        if (tags == state.of_sink.end()) return;
        for (const auto& [tag, id] : tags->second) abort(self, id);
      },
      [self](const DrainTimeout&) { abort_everything(self); },
      [self](const RequestClosed& message) {
        auto& state = state_of(self);
        state.core->closed(message.request);
        forget(state, message.request);
        answer_drains_when_empty(state);
      },
  };
}

}  // namespace

RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, SchedulerActor scheduler,
                                        OutputProcessorActor outputs, trace::SharedTrace trace) {
  return system.spawn(behavior, limits, std::move(info), std::move(tokenizer), std::move(scheduler), std::move(outputs),
                      std::move(trace));
}

}  // namespace pagoda::actors
