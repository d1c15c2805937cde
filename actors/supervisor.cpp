#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/engine_actors.hpp"
#include "actors/promise.hpp"
#include "actors/watch.hpp"

namespace pagoda::actors {
namespace {

/// Keeps the actors that all replicas share, and the replicas. Ends all of them together.
///
/// Shutdown ladder: (1) Drain at the router: no new requests, live requests end. (2) The supervisor gets an exit
/// message. (3) It sends every actor an exit message that overtakes the messages in its mailbox, and the supervisor of
/// each replica does so too. The state of a worker or cache engine waits for its stream, so no op outlives the memory
/// that it uses.
///
/// When a replica fails and another one is left: (1) The router gets the reason and asks for the end of the replica, as
/// for one that is drained. (2) The scheduler of the replica ends and reports its last counts, then the rest ends.
/// (3) The router moves the requests. When no replica is left, the engine fails.
///
/// A replica that has ended starts again when the router asks for it: the replica maker loads its devices and spawns
/// its actors, and the adapter store loads the adapters. Before that it counts neither as left nor as failed.
///
/// When the engine fails: (1) The router gets the reason, refuses requests from then on, and passes the reason on to
/// the output processor, which ends every live request and then itself. All other actors are ended. (2) So when the
/// supervisor ends, every live request has got its terminal output. The router stays for later questions.
struct SupervisorState {
  SupervisorState() {}

  struct OneReplica {
    RunningReplica running;
    bool has_failed = false;  ///< it waits for its end, or is ending
    bool has_ended = false;
    /// The answer to RestartReplica, while it is being started again; until then it has ended.
    std::optional<Promise<RestartedReplica>> starting = {};
  };
  struct Kept {
    SharedActors actors;
    ReplicaMakerActor maker;  ///< null: a replica that has ended does not come back
    std::function<void(ReplicaId)> give_up_starts;
    std::vector<OneReplica> replicas;
    bool router_stays = false;
  };
  std::shared_ptr<Kept> kept;
  bool failing = false;
};

using Self = SupervisorActor::stateful_pointer<SupervisorState>;

/// Forgets the first devices of a replica: a handle would keep the thread of a device that has been replaced.
RunningReplica without_devices(RunningReplica replica) {
  replica.actors.devices = {};
  return replica;
}

Error actor_ended() {
  return {ErrorCode::internal, "an actor of the engine has ended"};
}

/// Ends the actors without which no request can enter the engine.
void end_helpers(const SharedActors& actors) {
  end_now(actors.tokenizer);
  end_now(actors.grammar_compiler);
  end_now(actors.adapter_store);
}

void end_replicas(const SupervisorState::Kept& kept) {
  end_now(kept.maker);
  for (const auto& replica : kept.replicas) end_now(replica.running.supervisor);
}

void end_all(const SupervisorState::Kept& kept) {
  if (!kept.router_stays) end_now(kept.actors.router);
  end_helpers(kept.actors);
  end_replicas(kept);
  // This exit comes after the messages in the mailbox, so that requests that the output processor does not know yet get
  // their end too.
  caf::anon_send_exit(kept.actors.outputs, caf::exit_reason::user_shutdown);
}

/// Ends the engine, because nothing can be computed any more: see SupervisorState.
void fail_engine(Self self, Error error) {
  auto& state = state_of(self);
  if (state.failing) return;
  spdlog::critical("the engine stops: {}", error.message);
  state.failing = true;
  send(self, state.kept->actors.router, EngineFailed{std::move(error)});
  end_helpers(state.kept->actors);
  end_replicas(*state.kept);
}

/// Returns whether a replica can go on.
bool is_left(const SupervisorState::Kept& kept, std::size_t id) {
  return !kept.replicas.at(id).has_ended && !kept.replicas.at(id).has_failed;
}

/// Returns whether this replica can go on, and no other one.
bool is_last(const SupervisorState::Kept& kept, std::size_t id) {
  std::size_t num_left = 0;
  for (std::size_t one = 0; one < kept.replicas.size(); ++one) num_left += is_left(kept, one) ? 1 : 0;
  return num_left == 1 && is_left(kept, id);
}

void answer_start(SupervisorState::OneReplica& its, Result<SchedulerActor> scheduler) {
  auto promise = *std::exchange(its.starting, std::nullopt);
  deliver(promise, RestartedReplica{std::move(scheduler)});
}

/// The engine goes on without a replica, or fails if no other one is left. Does nothing if the replica has ended or
/// failed before.
void fail_replica(Self self, ReplicaId id, const Error& error) {
  auto& state = state_of(self);
  const auto index = static_cast<std::size_t>(id);
  auto& its = state.kept->replicas.at(index);
  if (its.starting) {
    end_now(its.running.supervisor);
    return answer_start(its, fail(error));
  }
  if (state.failing || !is_left(*state.kept, index)) return;
  if (is_last(*state.kept, index)) return fail_engine(self, error);
  spdlog::error("replica {} is down, the engine goes on without it: {}", id, error.message);
  its.has_failed = true;
  send(self, state.kept->actors.router, ReplicaDown{error, id});
}

/// Ends a replica, unless no other one is left: the others may have failed just before. First its scheduler ends, so
/// that all that it counted is in its last report.
caf::typed_response_promise<ReplicaEnded> end_replica(Self self, ReplicaId id) {
  const auto& state = state_of(self);
  Promise<ReplicaEnded> promise(self);
  const auto index = static_cast<std::size_t>(id);
  const auto answer = [&](Status status) {
    deliver(promise, ReplicaEnded{std::move(status), std::nullopt});
    return promise.handle();
  };
  if (state.failing) return answer(tl::unexpected(actor_ended()));
  if (is_last(*state.kept, index)) {
    return answer(fail(Error{ErrorCode::invalid_request, "no other replica is left", "replica"}));
  }
  auto& its = state.kept->replicas.at(index);
  if (its.has_ended) return answer({});
  its.has_failed = true;  // its supervisor may report the end of the scheduler
  auto end = [self, index, promise](std::optional<metrics::SchedulerMetrics> last) mutable {
    auto& ending = state_of(self).kept->replicas.at(index);
    if (!std::exchange(ending.has_ended, true)) {
      state_of(self).kept->give_up_starts(static_cast<ReplicaId>(index));  // one may block its supervisor
      end_now(ending.running.supervisor);
    }
    deliver(promise, ReplicaEnded{{}, std::move(last)});
  };
  pagoda::actors::request(
      self, its.running.actors.scheduler, EndScheduler{},
      [end](metrics::SchedulerMetrics& last) mutable { end(std::move(last)); },
      [end](caf::error&) mutable { end(std::nullopt); });
  return promise.handle();
}

/// The replica has the adapters that the others have, and counts as left from now on. Does nothing if it has failed.
void end_start(Self self, ReplicaId id, const ReplicaSupervisorActor& supervisor) {
  auto& its = state_of(self).kept->replicas.at(static_cast<std::size_t>(id));
  if (!its.starting || its.running.supervisor != supervisor) return;
  its.has_ended = its.has_failed = false;
  spdlog::info("replica {} is started again", id);
  answer_start(its, its.running.actors.scheduler);
}

/// Takes a replica that was made again, and has the adapters loaded there.
void begin_start(Self self, ReplicaId id, Result<RunningReplica> made, Promise<RestartedReplica> promise) {
  auto& state = state_of(self);
  if (made && state.failing) made = fail(actor_ended());  // the maker has ended it
  if (!made) return deliver(promise, RestartedReplica{fail(std::move(made.error()))});
  const auto me = caf::actor_cast<SupervisorActor>(self);
  auto& its = state.kept->replicas.at(static_cast<std::size_t>(id));
  its.running = without_devices(std::move(*made));
  its.starting = std::move(promise);
  const ReplicaSupervisorActor& supervisor = its.running.supervisor;
  watch(me, supervisor);
  send(self, supervisor, ConnectRoot{me});
  const AdapterStoreActor& store = state.kept->actors.adapter_store;
  if (!store) return end_start(self, id, supervisor);
  pagoda::actors::request(
      self, store, ConnectLoader{id, its.running.actors.scheduler},
      [self, id, supervisor](const LoaderConnected&) { end_start(self, id, supervisor); },
      [](caf::error&) {});  // the store has ended, and the engine fails
}

caf::typed_response_promise<RestartedReplica> restart_replica(Self self, ReplicaId id) {
  const auto& state = state_of(self);
  Promise<RestartedReplica> promise(self);
  const auto refuse = [&](Error error) {
    deliver(promise, RestartedReplica{fail(std::move(error))});
    return promise.handle();
  };
  const auto& its = state.kept->replicas.at(static_cast<std::size_t>(id));
  if (state.failing) return refuse(actor_ended());
  if (!state.kept->maker) {
    return refuse({ErrorCode::invalid_request, "the replicas of this engine cannot be started again", "replica"});
  }
  PAGODA_ASSERT(its.has_ended, "a replica that starts again has ended");
  pagoda::actors::request(
      self, state.kept->maker, MakeReplica{id, its.running},
      [self, id, promise](MadeReplica& answer) { begin_start(self, id, std::move(answer.made), promise); },
      [promise](caf::error&) mutable { deliver(promise, RestartedReplica{fail(actor_ended())}); });
  return promise.handle();
}

void on_child_gone(Self self, const caf::actor_addr& child) {
  auto& state = state_of(self);
  const SharedActors& actors = state.kept->actors;
  if (child == actors.router.address() || child == actors.outputs.address()) {
    if (!state.failing) spdlog::critical("an actor of the engine has ended; the engine stops");
    state.kept->router_stays = true;  // the router also reacts to the end of the output processor
    self->quit(caf::exit_reason::user_shutdown);
  } else if (state.failing) {
    return;
  } else if (child == actors.tokenizer.address() || child == actors.grammar_compiler.address() ||
             (actors.adapter_store && child == actors.adapter_store.address())) {
    fail_engine(self, actor_ended());
  } else {
    const auto& replicas = state.kept->replicas;
    const auto address = [](const auto& one) { return one.running.supervisor.address(); };
    const auto its = std::ranges::find(replicas, child, address);
    if (its != replicas.end()) fail_replica(self, static_cast<ReplicaId>(its - replicas.begin()), actor_ended());
  }
}

SupervisorActor::behavior_type behavior(Self self, const SharedActors& actors,
                                        const std::vector<RunningReplica>& replicas, const ReplicaMakerActor& maker,
                                        const std::function<void(ReplicaId)>& give_up_starts) {
  auto& state = state_of(self);
  state.kept = std::make_shared<SupervisorState::Kept>(
      SupervisorState::Kept{.actors = actors, .maker = maker, .give_up_starts = give_up_starts, .replicas = {}});
  for (const RunningReplica& replica : replicas) state.kept->replicas.push_back({replica});
  self->attach_functor([kept = state.kept] { end_all(*kept); });
  const auto me = caf::actor_cast<SupervisorActor>(self);
  watch(me, actors.router);
  watch(me, actors.tokenizer);
  watch(me, actors.grammar_compiler);
  if (actors.adapter_store) watch(me, actors.adapter_store);
  watch(me, actors.outputs);
  for (const RunningReplica& replica : replicas) watch(me, replica.supervisor);
  return {
      [self](const ChildGone& gone) { on_child_gone(self, gone.child); },
      [self](const ReplicaFailed& failed) { fail_replica(self, failed.replica, failed.error); },
      [self](const EndReplica& message) { return end_replica(self, message.replica); },
      [self](const RestartReplica& message) { return restart_replica(self, message.replica); },
  };
}

}  // namespace

caf::actor spawn_supervisor(caf::actor_system& system, const SharedActors& actors,
                            const std::vector<RunningReplica>& replicas, const ReplicaMakerActor& maker,
                            const std::function<void(ReplicaId)>& give_up_starts) {
  std::vector<RunningReplica> kept;
  for (const RunningReplica& replica : replicas) kept.push_back(without_devices(replica));
  const SupervisorActor supervisor = system.spawn(behavior, actors, std::move(kept), maker, give_up_starts);
  // Sent here and not by the new actor: it may start late, after the engine has got its first request.
  for (const RunningReplica& replica : replicas) send_anonymously(replica.supervisor, ConnectRoot{supervisor});
  send_anonymously(actors.router, ConnectRoot{supervisor});
  send_anonymously(actors.outputs, ConnectOutputs{actors.router});
  return caf::actor_cast<caf::actor>(supervisor);
}

}  // namespace pagoda::actors
