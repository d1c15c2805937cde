#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "actors/request_router_state.hpp"
#include "actors/router_answers.hpp"
#include "actors/trace_span.hpp"
#include "actors/watch.hpp"

namespace pagoda::actors {
namespace {

using Self = RequestRouterSelf;

const SchedulerActor& scheduler_of(const RequestRouterState& state, RequestId id) {
  return state.replicas.at(static_cast<std::size_t>(state.core->core().replica_of(id))).scheduler;
}

/// Ends a request in the engine.
template <class Message>
void end_group(Self self, const Message& message) {
  auto& state = state_of(self);
  if (const auto client = state.clients.find(message.request); client != state.clients.end()) {
    client->second.end = message;
  }
  send(self, scheduler_of(state, message.request), message);
}

/// Lets a request go on at the replica where it was placed again, with the tokens that it has.
void move(Self self, const SharedSpec& spec) {
  auto& state = state_of(self);
  const SchedulerActor& scheduler = scheduler_of(state, spec->id);
  send(self, state.outputs, MoveOutput{spec->id, scheduler});  // before any output that the scheduler can cause
  send(self, scheduler, AddGroup{spec});
  const auto& end = state.clients.at(spec->id).end;
  if (end) std::visit([&](const auto& message) { send(self, scheduler, message); }, *end);
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
    deliver(promise, SubmitReply{settled.id, std::ssize((*spec)->own_prompt())});
    return;
  }
  state.clients.erase(client);
  if (auto* aborted = std::get_if<RequestOutput>(&settled.outcome)) {
    deliver(promise, SubmitReply{settled.id});
    send(self, sink, OutputBatch{{std::move(*aborted)}});
  } else {
    auto& error = std::get<Error>(settled.outcome);
    if (error.code == ErrorCode::bad_adapter) spdlog::warn("request {}: {}", settled.id, error.message);
    refuse(state, promise, std::move(error));
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

void apply(Self self, routing::RouterCore::Effects effects);

/// Asks the root supervisor for the end of a replica, takes its last counts, and calls `then` (const Status&).
template <class Then>
void end_replica(Self self, ReplicaId id, Then then) {
  pagoda::actors::request(
      self, state_of(self).root, EndReplica{id},
      [self, id, then](ReplicaEnded& ended) {
        if (ended.last) state_of(self).reports->reported(id, std::move(*ended.last));
        state_of(self).replicas.at(static_cast<std::size_t>(id)).has_ended = ended.status.has_value();
        then(ended.status);
      },
      [self, then](caf::error&) { then(tl::unexpected(state_of(self).core->core().no_answer())); });
}

/// Moves the requests of a replica that is down to the others. Their tokens come from the output processor, which knows
/// what clients have received. `running`: those that the replica was computing; absent = perhaps all.
void hand_over(Self self, ReplicaId id, std::optional<std::vector<RequestId>> running) {
  auto& state = state_of(self);
  pagoda::actors::request(
      self, state.outputs, HandOver{.scheduler = state.replicas.at(static_cast<std::size_t>(id)).scheduler},
      [self, id, running = std::move(running)](HandedOver& handed_over) mutable {
        auto& core = *state_of(self).core;
        if (!running) {
          running.emplace();
          for (const SharedSpec& spec : handed_over.requests) running->push_back(spec->id);
        }
        if (!handed_over.requests.empty()) {
          spdlog::warn("{} requests go on at another replica", handed_over.requests.size());
        }
        apply(self, core.hand_over(id, std::move(handed_over.requests), *running));
      },
      [](caf::error&) {});  // the output processor has ended, and each request with it
}

void answer_drain(RequestRouterState::OneReplica& its, const Status& status) {
  its.is_draining = its.moves_requests = its.is_ending = false;
  for (auto& promise : std::exchange(its.waiting_for_drain, {})) deliver(promise, ReplicaDrained{status});
}

/// Lets a replica that drains take requests again, because no other one is left.
void resume_replica(Self self, ReplicaId id, const Status& why) {
  auto& state = state_of(self);
  spdlog::warn("replica {} is not drained and takes requests again: {}", id, why.error().message);
  state.core->resume_replica(id);
  state.reports->resumes(id);
  answer_drain(state.replicas.at(static_cast<std::size_t>(id)), why);
}

/// The root supervisor has ended a drained replica, or has refused to.
void on_end_of_replica(Self self, ReplicaId id, const Status& ended) {
  auto& state = state_of(self);
  auto& its = state.replicas.at(static_cast<std::size_t>(id));
  const auto present = state.core->core().placement().state_of(id);
  if (!ended && present == placement::ReplicaState::draining) return resume_replica(self, id, ended);
  if (ended && present != placement::ReplicaState::down) {
    state.core->replica_down(id);
    state.reports->ended(id, "the replica was drained");
    // It has requests if its drain moves them. It also gets requests while it drains if all others went down; then more
    // were up when the supervisor ended it.
    if (state.core->core().placement().num_placed_on(id) > 0) hand_over(self, id, std::vector<RequestId>());
  }
  answer_drain(its, ended);
}

/// Ends the replicas that drain and have no request any more, or whose requests go on at the others.
void end_drained_replicas(Self self) {
  auto& state = state_of(self);
  for (std::size_t i = 0; i < state.replicas.size(); ++i) {
    auto& its = state.replicas[i];
    const auto id = static_cast<ReplicaId>(i);
    if (!its.is_draining || its.is_ending) continue;
    if (!its.moves_requests && state.core->core().placement().num_placed_on(id) > 0) continue;
    its.is_ending = true;
    end_replica(self, id, [self, id](const Status& ended) { on_end_of_replica(self, id, ended); });
  }
}

void begin_starts(Self self);

void apply(Self self, routing::RouterCore::Effects effects) {
  auto& state = state_of(self);
  for (const auto job : effects.taken_back) state.tokenizer->withdraw(job);
  for (const auto job : effects.grammars_taken_back) state.grammars->withdraw(job);
  for (const RequestId id : effects.adapters_withdrawn) send(self, state.adapters, WithdrawAdapter{id});
  for (const AdapterId id : effects.adapters_released) send(self, state.adapters, ReleaseAdapter{id});
  for (auto& settled : effects.settled) settle(self, std::move(settled));
  for (const SharedSpec& spec : effects.moved) move(self, spec);
  if (!effects.failed.empty()) {
    StepOutputs ends;
    for (auto& [id, error] : effects.failed) ends.ends.push_back({id, std::move(error)});
    send(self, state.outputs, std::move(ends));
  }
  for (const RequestId id : effects.aborted) end_group(self, AbortGroup{id});
  for (auto& expired : effects.expired) end_group(self, ExpireGroup{expired.id, std::move(expired.error)});
  if (effects.drained) answer_drains(self);
  answer_if_idle(state);
  end_drained_replicas(self);
  begin_starts(self);
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

void acquire_adapter(Self self, RequestId id, const std::string& name) {
  const auto on_answer = [self, id](Result<AdapterRef> adapter) {
    apply(self, state_of(self).core->adapter_acquired(id, std::move(adapter)));
  };
  pagoda::actors::request(
      self, state_of(self).adapters, AcquireAdapter{id, name},
      [on_answer](AdapterAcquired& answer) { on_answer(std::move(answer.adapter)); },
      [self, on_answer](caf::error&) { on_answer(fail(state_of(self).core->core().no_answer())); });
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
  if (submitted->needs_adapter) acquire_adapter(self, id, request->adapter);
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

/// Ends a replica that is down and moves its requests to the others. `running`: as in hand_over. Does nothing if the
/// replica, whose scheduler this was, has been started again since: a drain had ended it.
void end_down_replica(Self self, ReplicaId id, const SchedulerActor& scheduler,
                      const std::optional<std::vector<RequestId>>& running) {
  const auto& its = state_of(self).replicas.at(static_cast<std::size_t>(id));
  if (its.scheduler != scheduler) return;
  const auto on_end = [self, id, running](const Status&) {
    hand_over(self, id, running);
    begin_starts(self);
  };
  its.has_ended ? on_end({}) : end_replica(self, id, on_end);
}

/// The replica takes requests from now on, or its start has failed.
void end_start(Self self, ReplicaId id, Status started) {
  auto& state = state_of(self);
  auto& its = state.replicas.at(static_cast<std::size_t>(id));
  its.is_asked_to_start = false;
  if (!std::exchange(its.is_starting, false)) return;  // the engine has failed meanwhile
  if (started) started = state.core->core().check_start(id);
  if (started) {
    state.core->start_replica(id);
    state.reports->started(id);
  } else {
    spdlog::error("replica {} cannot be started again: {}", id, started.error().message);
    state.reports->ended(id, "it cannot be started again: " + started.error().message);
  }
  for (auto& promise : std::exchange(its.waiting_for_start, {})) deliver(promise, ReplicaStarted{started});
}

caf::typed_response_promise<ReplicaStarted> start_replica(Self self, const StartReplica& message) {
  auto& state = state_of(self);
  Promise<ReplicaStarted> promise(self);
  const ReplicaId id = message.replica;
  if (Status possible = state.core->core().check_start(id); !possible) {
    deliver(promise, ReplicaStarted{std::move(possible)});
    return promise.handle();
  }
  auto& its = state.replicas.at(static_cast<std::size_t>(id));
  if (message.waits) {
    its.waiting_for_start.push_back(promise);
  } else {
    deliver(promise, ReplicaStarted{});
  }
  its.is_starting = true;
  state.reports->starts(id);
  begin_starts(self);
  return promise.handle();
}

/// Starts the replicas that are to start, once they have ended and their requests have moved.
void begin_starts(Self self) {
  auto& state = state_of(self);
  for (std::size_t i = 0; i < state.replicas.size(); ++i) {
    auto& its = state.replicas[i];
    const auto id = static_cast<ReplicaId>(i);
    if (!its.is_starting || its.is_asked_to_start || !its.has_ended) continue;
    if (state.core->core().placement().num_placed_on(id) > 0) continue;
    its.is_asked_to_start = true;
    pagoda::actors::request(
        self, state.root, RestartReplica{id},
        [self, id](RestartedReplica& answer) {
          if (!answer.scheduler) return end_start(self, id, tl::unexpected(std::move(answer.scheduler.error())));
          auto& started = state_of(self).replicas.at(static_cast<std::size_t>(id));
          started.scheduler = std::move(*answer.scheduler);
          started.has_ended = false;
          end_start(self, id, {});
        },
        [self, id](caf::error&) { end_start(self, id, tl::unexpected(state_of(self).core->core().no_answer())); });
  }
}

/// Moves a request: its scheduler gives it up, the output processor knows its tokens, and another scheduler gets it.
/// If its replica goes down meanwhile, it moves with the others there.
caf::typed_response_promise<RequestMigrated> migrate(Self self, const MigrateRequest& message) {
  auto& state = state_of(self);
  Promise<RequestMigrated> promise(self);
  auto answer = [self, promise, id = message.request](Status status) mutable {
    if (const auto client = state_of(self).clients.find(id); client != state_of(self).clients.end()) {
      client->second.is_migrating = false;
    }
    deliver(promise, RequestMigrated{std::move(status)});
  };
  const auto refuse = [&](std::string why) {
    deliver(promise, RequestMigrated{fail(Error{ErrorCode::invalid_request, std::move(why), "id"})});
    return promise.handle();
  };
  const std::string name = "request " + std::to_string(message.request);
  if (Status possible = state.core->core().check_migration(message.request, message.replica); !possible) {
    deliver(promise, RequestMigrated{std::move(possible)});
    return promise.handle();
  }
  auto& client = state.clients.at(message.request);
  if (std::exchange(client.is_migrating, true)) return refuse(name + " is moving to another replica");
  const Error has_ended{ErrorCode::invalid_request, name + " has ended", "id"};
  auto no_answer = [self, answer](caf::error&) mutable {
    answer(tl::unexpected(state_of(self).core->core().no_answer()));
  };
  const auto from = state.core->core().replica_of(message.request);
  const SchedulerActor scheduler = scheduler_of(state, message.request);
  auto on_handed_over = [self, id = message.request, from, to = message.replica, answer,
                         has_ended](HandedOver& handed_over) mutable {
    auto& core = *state_of(self).core;
    if (!handed_over.requests.empty()) {
      apply(self, core.migrate(std::move(handed_over.requests.front()), from, to));
    }
    // Meanwhile it may have ended, or moved with all requests of its replica, or the other replica may have gone.
    if (core.core().has_failed()) return answer(tl::unexpected(core.core().no_answer()));
    const auto& placement = core.core().placement();
    if (!placement.is_placed(id)) return answer(fail(has_ended));
    if (const ReplicaId at = placement.replica_of(id); at != to) {
      return answer(fail(Error{ErrorCode::invalid_request,
                               "replica " + std::to_string(to) + " is not up any more; request " + std::to_string(id) +
                                   " goes on at replica " + std::to_string(at),
                               "replica"}));
    }
    answer({});
  };
  auto on_released = [self, scheduler, answer, has_ended, on_handed_over, no_answer,
                      id = message.request](const GroupReleased& released) mutable {
    if (!released.found) return answer(fail(has_ended));
    pagoda::actors::request(self, state_of(self).outputs, HandOver{scheduler, id}, on_handed_over, no_answer);
  };
  pagoda::actors::request(self, scheduler, ReleaseGroup{message.request}, on_released, no_answer);
  return promise.handle();
}

/// Takes what it needs of a replica that cannot go on, then lets it end.
void on_replica_down(Self self, const ReplicaDown& down) {
  auto& state = state_of(self);
  const ReplicaId id = down.replica;
  state.reports->ended(id, down.error.message);
  state.core->replica_down(id);
  const auto& placement = state.core->core().placement();
  for (std::size_t i = 0; i < state.replicas.size(); ++i) {
    const auto other = static_cast<ReplicaId>(i);
    // One whose end is asked for is resumed if that is refused.
    const bool drains = placement.state_of(other) == placement::ReplicaState::draining && !state.replicas[i].is_ending;
    if (!drains || placement.count(placement::ReplicaState::up) > 0) continue;
    resume_replica(self, other, fail(Error{ErrorCode::invalid_request, "no other replica is left", "replica"}));
  }
  const SchedulerActor scheduler = state.replicas.at(static_cast<std::size_t>(id)).scheduler;
  pagoda::actors::request(
      self, scheduler, GetProgress{},
      [self, id, scheduler](const Progress& progress) {
        std::vector<RequestId> running;
        for (const GroupProgress& group : progress.groups) {
          if (group.state == RequestState::running) running.push_back(group.id);
        }
        end_down_replica(self, id, scheduler, running);
      },
      [self, id, scheduler](caf::error&) {  // the scheduler itself has ended
        end_down_replica(self, id, scheduler, std::nullopt);
      });
}

caf::typed_response_promise<ReplicaDrained> drain_replica(Self self, const DrainReplica& message) {
  auto& state = state_of(self);
  Promise<ReplicaDrained> promise(self);
  if (Status possible = state.core->core().check_drain(message.replica); !possible) {
    deliver(promise, ReplicaDrained{std::move(possible)});
    return promise.handle();
  }
  state.core->drain_replica(message.replica);
  state.reports->drains(message.replica);
  auto& its = state.replicas.at(static_cast<std::size_t>(message.replica));
  its.is_draining = true;
  its.moves_requests |= message.moves_requests;
  if (message.waits) {
    its.waiting_for_drain.push_back(promise);
  } else {
    deliver(promise, ReplicaDrained{});
  }
  end_drained_replicas(self);
  return promise.handle();
}

/// Ends requests that are not in the engine. The output processor ends those in the engine: it gets the message after
/// the last request that was sent to it, and before the flush of a drain.
void on_engine_failed(Self self, const EngineFailed& failed) {
  auto& state = state_of(self);
  auto effects = state.core->engine_failed(failed.error);
  for (std::size_t i = 0; i < state.replicas.size(); ++i) {
    end_start(self, static_cast<ReplicaId>(i), tl::unexpected(failed.error));
  }
  send(self, state.outputs, failed);
  apply(self, std::move(effects));
  state.tokenizer->fail_all();
  state.grammars->fail_all();
}

void close(Self self, const RequestClosed& closed) {
  auto& state = state_of(self);
  state.clients.erase(closed.request);
  auto effects = state.core->closed(closed.request, closed.work, now_us());
  if (closed.adapter_failed) {
    for (const AdapterId id : effects.adapters_released) send(self, state.adapters, AdapterBroken{id});
  }
  apply(self, std::move(effects));
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
    close(self, {.request = id});
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
                                           const AdapterStoreActor& adapters,
                                           const std::vector<SchedulerActor>& schedulers,
                                           const OutputProcessorActor& outputs, const Instruments& instruments) {
  auto& initial = state_of(self);
  initial.core = std::make_unique<journal::RecordedRouter>(limits, now_us(), instruments.journal);
  initial.info = info;
  initial.tokenizer.emplace(self, *initial.core, tokenizer);
  initial.grammars.emplace(self, *initial.core, grammars.compiler, grammars.cache);
  PAGODA_ASSERT(limits.has_adapters == static_cast<bool>(adapters), "an engine with adapters has a store for them");
  initial.adapters = adapters;
  PAGODA_ASSERT(std::ssize(schedulers) == limits.num_replicas, "each replica has a scheduler");
  for (const SchedulerActor& scheduler : schedulers) initial.replicas.push_back({.scheduler = scheduler});
  initial.reports.emplace(schedulers.size());
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
      [self](const AddAdapter& message) { return change_adapters(self, message); },
      [self](const RemoveAdapter& message) { return change_adapters(self, message); },
      [self](const ListAdapters& message) { return answer_adapters(self, message); },
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
      [self](const DrainReplica& message) { return drain_replica(self, message); },
      [self](const StartReplica& message) { return start_replica(self, message); },
      [self](const MigrateRequest& message) { return migrate(self, message); },
      [self](const SinkGone& message) {
        state_of(self).watched_clients.erase(message.sink.id());
        apply(self, state_of(self).core->client_gone(message.sink.id(), now_us()));
      },
      [self](const DrainTimeout&) { on_drain_timeout(self); },
      [self](const DeadlineDue&) { on_deadline(self); },
      [self](const RequestClosed& message) { close(self, message); },
      [self](const ChildGone&) { on_outputs_gone(self); },
      [self](const ConnectRoot& connect) { state_of(self).root = connect.root; },
      [self](const ReplicaDown& down) { on_replica_down(self, down); },
      [self](const EngineFailed& failed) { on_engine_failed(self, failed); },
  };
}

}  // namespace

RequestRouterActor spawn_request_router(caf::actor_system& system, routing::AdmissionLimits limits, ModelInfo info,
                                        TokenizerActor tokenizer, Grammars grammars, AdapterStoreActor adapters,
                                        std::vector<SchedulerActor> schedulers, OutputProcessorActor outputs,
                                        Instruments instruments) {
  return system.spawn(behavior, limits, std::move(info), std::move(tokenizer), std::move(grammars), std::move(adapters),
                      std::move(schedulers), std::move(outputs), std::move(instruments));
}

}  // namespace pagoda::actors
