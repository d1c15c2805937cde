#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/grammar_client.hpp"
#include "actors/promise.hpp"
#include "actors/tokenizer_client.hpp"
#include "actors/trace_span.hpp"
#include "actors/watch.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::actors {
namespace {

using SubmitPromise = Promise<SubmitReply>;

/// Drives RouterCore, and maps its ids to handles and promises.
struct RequestRouterState {
  RequestRouterState() {}

  /// A request that has not ended: the destination of its outputs, and the promise of its ticket until it enters the
  /// engine.
  struct Client {
    SinkActor sink;
    std::uint64_t tag = 0;
    std::optional<SubmitPromise> promise;
  };

  std::unique_ptr<journal::RecordedRouter> core;
  ModelInfo info;
  std::optional<TokenizerClient> tokenizer;
  std::optional<GrammarClient> grammars;
  std::vector<SchedulerActor> schedulers;  ///< schedulers by replica; one today
  OutputProcessorActor outputs;
  std::unordered_map<RequestId, Client> clients;
  std::unordered_set<caf::actor_id> watched_clients;
  std::vector<Promise<Drained>> draining;
  std::vector<Promise<Idle>> awaiting_idle;
  metrics::RefusalCounts refusals;
  std::optional<TimeUs> next_timer;  ///< time of the earliest DeadlineDue that is on its way
  trace::SharedTracer trace;
  journal::SharedJournal journal;
};

using Self = RequestRouterActor::stateful_pointer<RequestRouterState>;

const SchedulerActor& scheduler_of(const RequestRouterState& state, RequestId id) {
  return state.schedulers[static_cast<std::size_t>(state.core->core().replica_of(id))];
}

void refuse(RequestRouterState& state, SubmitPromise& promise, Error error) {
  state.refusals.add(error.code);
  deliver(promise, SubmitReply{fail(std::move(error))});
}

/// Moves the request into the engine, or ends it.
void settle(Self self, routing::RouterCore::Settled settled) {
  auto& state = state_of(self);
  const auto client = state.clients.find(settled.id);
  const SinkActor sink = client->second.sink;
  SubmitPromise promise = *std::exchange(client->second.promise, std::nullopt);
  if (const auto* spec = std::get_if<SharedSpec>(&settled.outcome)) {
    const SchedulerActor& scheduler = scheduler_of(state, settled.id);
    send(self, state.outputs, OpenOutput{*spec, sink, scheduler});  // before any output that the scheduler can cause
    send(self, scheduler, AddGroup{*spec});
    deliver(promise, SubmitReply{settled.id, std::ssize(*(*spec)->prompt)});
    return;
  }
  state.clients.erase(client);
  if (auto* aborted = std::get_if<RequestOutput>(&settled.outcome)) {
    deliver(promise, SubmitReply{settled.id});
    send(self, sink, OutputBatch{{std::move(*aborted)}});
  } else {
    refuse(state, promise, std::get<Error>(std::move(settled.outcome)));
  }
}

/// Answers after the last outputs were sent, so that the receiver of the answer may end the sinks. If the engine has
/// failed during a drain, the drain has failed.
void answer_drains(Self self) {
  auto answer = [self, promises = std::exchange(state_of(self).draining, {})]() mutable {
    const auto aborted = state_of(self).core->core().drained();
    for (auto& promise : promises) {
      if (aborted) {
        deliver(promise, Drained{*aborted});
      } else {
        deliver(promise, caf::make_error(caf::sec::runtime_error, aborted.error().message));
      }
    }
  };
  pagoda::actors::request(
      self, state_of(self).outputs, FlushOutputs{}, [answer](const OutputsFlushed&) mutable { answer(); },
      [answer](caf::error&) mutable { answer(); });
}

void answer_if_idle(RequestRouterState& state) {
  if (state.core->core().num_live() > 0) return;
  for (auto& promise : std::exchange(state.awaiting_idle, {})) deliver(promise, Idle{});
}

void apply(Self self, routing::RouterCore::Effects effects) {
  auto& state = state_of(self);
  for (const auto job : effects.taken_back) state.tokenizer->withdraw(job);
  for (const auto job : effects.grammars_taken_back) state.grammars->withdraw(job);
  for (auto& settled : effects.settled) settle(self, std::move(settled));
  for (const RequestId id : effects.aborted) send(self, scheduler_of(state, id), AbortGroup{id});
  for (auto& expired : effects.expired) {
    send(self, scheduler_of(state, expired.id), ExpireGroup{expired.id, std::move(expired.error)});
  }
  if (effects.drained) answer_drains(self);
  answer_if_idle(state);
}

/// Keeps one timer message on its way, for the earliest deadline. Requests that end earlier leave no timer behind.
void watch_deadlines(Self self) {
  auto& state = state_of(self);
  const auto next = state.core->core().next_deadline();
  if (!next || (state.next_timer && *state.next_timer <= *next)) return;
  state.next_timer = next;
  const auto wait = std::chrono::milliseconds(std::max<TimeUs>(0, *next - now_us() + 999) / 1000);
  send_later(self, caf::actor_cast<RequestRouterActor>(self), wait, DeadlineDue{});
}

void on_deadline(Self self) {
  auto& state = state_of(self);
  state.next_timer.reset();
  const auto next = state.core->core().next_deadline();
  if (const auto now = now_us(); next && *next <= now) apply(self, state.core->expire(now));
  watch_deadlines(self);
}

void on_prompt_encoded(Self self, RequestId id, Result<TokenIds> prompt, std::vector<TokenIds> bad_words = {}) {
  auto& state = state_of(self);
  const auto num_tokens = prompt ? prompt->size() : 0;
  const TraceSpan span(state.trace, trace::Row::router, "admit");
  auto effects = state.core->prompt_encoded(id, std::move(prompt), std::move(bad_words));
  if (!effects.settled.empty()) span.end({arg("request", id), arg("prompt_tokens", num_tokens)});
  apply(self, std::move(effects));
}

template <class Handle>
void watch_client(Self self, const Handle& client) {
  const auto id = caf::actor_cast<caf::actor_addr>(client).id();
  if (state_of(self).watched_clients.insert(id).second)
    watch<SinkGone>(caf::actor_cast<RequestRouterActor>(self), client);
}

void submit(Self self, const SubmitRequest& message, SubmitPromise& promise) {
  auto& state = state_of(self);
  const auto& request = message.request;
  const TraceSpan span(state.trace, trace::Row::router, "submit");
  const auto submitted = state.core->submit(message.sink.id(), message.tag, *request, now_us(),
                                            state.grammars->find(*request), message.waited_us);
  span.end({arg("request", submitted ? submitted->id : 0)});
  if (!submitted) return refuse(state, promise, submitted.error());
  const RequestId id = submitted->id;
  state.clients.emplace(id, RequestRouterState::Client{message.sink, message.tag, promise});
  watch_client(self, message.sink);
  watch_deadlines(self);
  if (submitted->grammar_job) {
    const auto job = *submitted->grammar_job;
    state.grammars->ask(job, request, [self, job](const CompileReply& answer) {
      apply(self, state_of(self).core->grammar_compiled(job, answer.grammar));
    });
  }
  if (submitted->job) {
    state.tokenizer->ask<TokenizeReply>(
        *submitted->job, EncodePrompt{request, state.core->core().prompt_tokens_kept(*request)},
        [self, id](const TokenizeReply& answer) { on_prompt_encoded(self, id, answer.token_ids, answer.bad_words); });
  } else {
    on_prompt_encoded(self, id, TokenIds(request->prompt_token_ids->begin(), request->prompt_token_ids->end()));
  }
}

/// Passes a tokenizer question of a client on and returns the promise of its answer.
template <class Answer, class Question>
caf::typed_response_promise<Answer> answer_from_tokenizer(Self self, const Question& question, std::size_t num_bytes) {
  Promise<Answer> promise(self);
  const auto& asker = self->current_sender();
  if (asker) watch_client(self, asker);
  state_of(self).tokenizer->ask_for(asker ? asker->id() : caf::actor_id{}, question, num_bytes, promise);
  return promise.handle();
}

caf::typed_response_promise<EngineStats> answer_stats(Self self, const GetStats& message) {
  Promise<EngineStats> promise(self);
  if (state_of(self).core->core().has_failed()) {
    deliver(promise, state_of(self).core->core().with_own(EngineStats{}, now_us()));
    return promise.handle();
  }
  auto answer = [self, promise](const EngineStats& stats) mutable {
    deliver(promise, state_of(self).core->core().with_own(stats, now_us()));
  };
  const auto no_answer = [self, promise, answer](caf::error& reason) mutable {
    if (state_of(self).core->core().has_failed()) return answer(EngineStats{});
    deliver(promise, std::move(reason));
  };
  pagoda::actors::request(self, state_of(self).schedulers.front(), message, answer, no_answer);
  return promise.handle();
}

caf::typed_response_promise<RequestList> answer_list(Self self) {
  Promise<RequestList> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  pagoda::actors::request(
      self, state_of(self).schedulers.front(), GetProgress{},
      [self, promise](const Progress& progress) mutable {
        deliver(promise, RequestList{state_of(self).core->core().live_requests(progress.groups, now_us())});
      },
      no_answer);
  return promise.handle();
}

caf::typed_response_promise<PrefixCacheReset> reset_prefix_cache(Self self) {
  Promise<PrefixCacheReset> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  pagoda::actors::request(
      self, state_of(self).schedulers.front(), ResetPrefixCache{},
      [promise](const PrefixCacheReset& reset) mutable { deliver(promise, reset); }, no_answer);
  return promise.handle();
}

/// Asks the scheduler, then the output processor: a client that asks after the end of a request finds it in both.
caf::typed_response_promise<metrics::EngineMetrics> answer_metrics(Self self, const GetMetrics& message) {
  Promise<metrics::EngineMetrics> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto on_scheduler = [self, promise, no_answer](const metrics::SchedulerMetrics& reply) {
    metrics::EngineMetrics all{.stats = reply.stats, .steps = reply.steps};
    auto answer = [self, promise, all = std::move(all)](const metrics::RequestMetrics& requests) mutable {
      auto& state = state_of(self);
      all.requests = requests;
      all.refusals = state.refusals;
      all.grammars = state.grammars->metrics();
      deliver(promise, state.core->core().metrics_with_own(std::move(all), now_us()));
    };
    pagoda::actors::request(self, state_of(self).outputs, GetMetrics{}, std::move(answer), no_answer);
  };
  pagoda::actors::request(self, state_of(self).schedulers.front(), message, on_scheduler, no_answer);
  return promise.handle();
}

/// Adds the output processor's facts to the live requests.
void add_facts(view::Queues& queues, const std::vector<view::RequestFacts::Open>& facts) {
  auto next = facts.begin();  // in the order of the question
  for (view::LiveRequest& request : queues.requests) {
    if (next == facts.end()) return;
    if (next->id != request.id) continue;
    request.first_token_us = next->first_token_us;
    request.cached_tokens = next->cached_tokens;
    request.preemptions = next->preemptions;
    request.restarts = next->restarts;
    ++next;
  }
}

/// Asks the replica, then the output processor; adds the spans.
caf::typed_response_promise<view::EngineView> answer_view(Self self, const GetView& message) {
  Promise<view::EngineView> promise(self);
  const auto no_answer = [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); };
  const auto on_replica = [self, promise, no_answer, message](view::ReplicaView& reply) {
    GetRequestFacts question;
    for (const auto& request : reply.queues.requests) question.requests.push_back(request.id);
    auto answer = [self, promise, message, reply = std::move(reply)](view::RequestFacts& facts) mutable {
      const auto& state = state_of(self);
      view::EngineView all;
      all.now_us = now_us();
      all.stats = state.core->core().with_own(reply.stats, all.now_us);
      all.queues = std::move(reply.queues);
      add_facts(all.queues, facts.open);
      std::ranges::move(state.core->core().waiting_for_grammar(), std::back_inserter(all.queues.requests));
      all.blocks = std::move(reply.blocks);
      all.ended = std::move(facts.ended);
      if (state.trace) {
        auto recent = state.trace->recent().since(message.spans_after, view::kMaxSpans, all.now_us);
        all.spans = std::move(recent.spans);
        all.last_span = recent.last_number;
      }
      deliver(promise, std::move(all));
    };
    pagoda::actors::request(self, state_of(self).outputs, std::move(question), std::move(answer), no_answer);
  };
  pagoda::actors::request(self, state_of(self).schedulers.front(), message, on_replica, no_answer);
  return promise.handle();
}

/// Ends requests that are not in the engine. The output processor ends those in the engine: it gets the message after
/// the last request that was sent to it, and before the flush of a drain.
void on_engine_failed(Self self, const EngineFailed& failed) {
  auto& state = state_of(self);
  auto effects = state.core->engine_failed(failed.error);
  send(self, state.outputs, failed);
  apply(self, std::move(effects));
  state.tokenizer->fail_all();
  state.grammars->fail_all();
}

void close(Self self, RequestId id, const routing::WorkDone& work) {
  auto& state = state_of(self);
  state.clients.erase(id);
  apply(self, state.core->closed(id, work, now_us()));
}

/// The output processor has ended, and has reported the end of the requests that it knew; those are closed. Requests
/// that were on their way to it end here.
void on_outputs_gone(Self self) {
  auto& state = state_of(self);
  if (!state.core->core().has_failed()) {
    on_engine_failed(self, {{ErrorCode::internal, "an actor of the engine has ended"}});
  }
  const Error error = state.core->core().no_answer();
  while (!state.clients.empty()) {
    const auto& [id, client] = *state.clients.begin();
    retry_on_bad_alloc([&] {
      send(self, client.sink, OutputBatch{{RequestOutput{id, client.tag, {}, std::nullopt, error}}});
    });
    close(self, id, {});
  }
}

/// Resumable requests in the engine stay in the journal as they are, as if the process had been killed, and the next
/// server continues them. Before it stops recording, the output processor records each request that was sent to it.
void on_drain_timeout(Self self) {
  auto& state = state_of(self);
  const bool leaves_resumable = state.journal != nullptr && !state.journal->token_key();
  if (leaves_resumable) send(self, state.outputs, StopRecording{});
  auto effects = state.core->abort_all(now_us(), leaves_resumable);
  if (const auto count = effects.expired.size(); count > 0) {
    spdlog::info("{} resumable requests stay in the journal; a server with --recover continues them", count);
  }
  apply(self, std::move(effects));
}

RequestRouterActor::behavior_type behavior(Self self, const routing::AdmissionLimits& limits, const ModelInfo& info,
                                           const TokenizerActor& tokenizer, const Grammars& grammars,
                                           const std::vector<SchedulerActor>& schedulers,
                                           const OutputProcessorActor& outputs, const Instruments& instruments) {
  auto& initial = state_of(self);
  initial.core = std::make_unique<journal::RecordedRouter>(limits, now_us(), instruments.journal);
  initial.info = info;
  initial.tokenizer.emplace(self, *initial.core, tokenizer);
  initial.grammars.emplace(self, *initial.core, grammars.compiler, grammars.cache);
  PAGODA_ASSERT(std::ssize(schedulers) == limits.num_replicas && limits.num_replicas == 1, "one replica is served");
  initial.schedulers = schedulers;
  initial.outputs = outputs;
  initial.trace = instruments.trace;
  initial.journal = instruments.journal;
  watch(caf::actor_cast<RequestRouterActor>(self), outputs);
  return {
      [self](const SubmitRequest& message) {
        Promise<SubmitReply> promise(self);
        submit(self, message, promise);
        return promise.handle();
      },
      [self](const CancelRequest& message) -> CancelReply {
        auto& core = *state_of(self).core;
        const auto id = core.core().live_request(message.sink.id(), message.tag);
        if (id) apply(self, core.abort(*id, now_us()));
        return reply(CancelReply{id.has_value()});
      },
      [self](const ListRequests&) { return answer_list(self); },
      [self](const AbortRequest& message) -> CancelReply {
        auto& core = *state_of(self).core;
        const bool found = core.core().is_live(message.request);
        if (found) apply(self, core.abort(message.request, now_us()));
        return reply(CancelReply{found});
      },
      [self](const ResetPrefixCache&) { return reset_prefix_cache(self); },
      [self](const GetStats& message) { return answer_stats(self, message); },
      [self](const GetMetrics& message) { return answer_metrics(self, message); },
      [self](const GetView& message) { return answer_view(self, message); },
      [self](const GetModelInfo&) { return reply(state_of(self).info); },
      [self](const TokenizeRequest& message) {
        const std::size_t num_bytes = message.text.size() + message.literals.size() * sizeof(ByteRange);
        return answer_from_tokenizer<TokenizeReply>(self, message, num_bytes);
      },
      [self](const DetokenizeRequest& message) {
        return answer_from_tokenizer<DetokenizeReply>(self, message, message.token_ids.size() * sizeof(TokenId));
      },
      [self](const Drain& message) {
        auto& state = state_of(self);
        Promise<Drained> promise(self);
        state.draining.push_back(promise);
        apply(self, state.core->drain());
        if (state.core->core().num_live() > 0 && message.timeout_ms >= 0) {
          send_later(self, caf::actor_cast<RequestRouterActor>(self), std::chrono::milliseconds(message.timeout_ms),
                     DrainTimeout{});
        }
        return promise.handle();
      },
      [self](const AwaitIdle&) {
        Promise<Idle> promise(self);
        state_of(self).awaiting_idle.push_back(promise);
        answer_if_idle(state_of(self));
        return promise.handle();
      },
      [self](const SinkGone& message) {
        state_of(self).watched_clients.erase(message.sink.id());
        apply(self, state_of(self).core->client_gone(message.sink.id(), now_us()));
      },
      [self](const DrainTimeout&) { on_drain_timeout(self); },
      [self](const DeadlineDue&) { on_deadline(self); },
      [self](const RequestClosed& message) { close(self, message.request, message.work); },
      [self](const ChildGone&) { on_outputs_gone(self); },
      [self](const EngineFailed& failed) { on_engine_failed(self, failed); },
  };
}

}  // namespace

RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, Grammars grammars,
                                        std::vector<SchedulerActor> schedulers, OutputProcessorActor outputs,
                                        Instruments instruments) {
  return system.spawn(behavior, limits, std::move(info), std::move(tokenizer), std::move(grammars),
                      std::move(schedulers), std::move(outputs), std::move(instruments));
}

}  // namespace pagoda::actors
