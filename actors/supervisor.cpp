#include <algorithm>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/engine_actors.hpp"
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
/// When a replica fails and another one is left: the router gets the reason and moves the requests of the replica. When
/// none is left, the engine fails.
///
/// When the engine fails: (1) The router gets the reason, refuses requests from then on, and passes the reason on to
/// the output processor, which ends every live request and then itself. All other actors are ended. (2) So when the
/// supervisor ends, every live request has got its terminal output. The router stays for later questions.
struct SupervisorState {
  SupervisorState() {}

  struct Kept {
    SharedActors actors;
    std::vector<ReplicaSupervisorActor> replicas;  ///< null: the replica has ended
    bool router_stays = false;
  };
  std::shared_ptr<Kept> kept;
  bool failing = false;
};

using Self = SupervisorActor::stateful_pointer<SupervisorState>;

Error actor_ended() {
  return {ErrorCode::internal, "an actor of the engine has ended"};
}

/// Ends the actors without which no request can enter the engine.
void end_helpers(const SharedActors& actors) {
  end_now(actors.tokenizer);
  end_now(actors.grammar_compiler);
  end_now(actors.adapter_store);
}

void end_all(const SupervisorState::Kept& kept) {
  if (!kept.router_stays) end_now(kept.actors.router);
  end_helpers(kept.actors);
  for (const auto& replica : kept.replicas) end_now(replica);
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
  for (const auto& replica : state.kept->replicas) end_now(replica);
}

/// Ends a replica. The engine goes on with the others, or fails if none is left. Does nothing if the
/// replica has ended before.
void end_replica(Self self, ReplicaId id, const std::optional<Error>& error) {
  auto& state = state_of(self);
  auto& replicas = state.kept->replicas;
  ReplicaSupervisorActor& its = replicas.at(static_cast<std::size_t>(id));
  if (state.failing || !its) return;
  const auto is_left = [](const ReplicaSupervisorActor& one) { return static_cast<bool>(one); };
  // A replica that was drained may be the last one left, too: the other may have failed just before.
  if (std::ranges::count_if(replicas, is_left) == 1) return fail_engine(self, error.value_or(actor_ended()));
  if (error) {
    spdlog::error("replica {} is down, the engine goes on without it: {}", id, error->message);
    send(self, state.kept->actors.router, ReplicaDown{*error, id});
  }
  end_now(std::exchange(its, nullptr));
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
    const auto its = std::ranges::find_if(replicas, [&](const auto& one) { return one && one.address() == child; });
    if (its != replicas.end()) end_replica(self, static_cast<ReplicaId>(its - replicas.begin()), actor_ended());
  }
}

SupervisorActor::behavior_type behavior(Self self, const SharedActors& actors,
                                        const std::vector<ReplicaSupervisorActor>& replicas) {
  auto& state = state_of(self);
  state.kept = std::make_shared<SupervisorState::Kept>(SupervisorState::Kept{actors, replicas});
  self->attach_functor([kept = state.kept] { end_all(*kept); });
  const auto me = caf::actor_cast<SupervisorActor>(self);
  watch(me, actors.router);
  watch(me, actors.tokenizer);
  watch(me, actors.grammar_compiler);
  if (actors.adapter_store) watch(me, actors.adapter_store);
  watch(me, actors.outputs);
  for (const auto& replica : replicas) watch(me, replica);
  return {
      [self](const ChildGone& gone) { on_child_gone(self, gone.child); },
      [self](const ReplicaFailed& failed) { end_replica(self, failed.replica, failed.error); },
      [self](const EndReplica& drained) { end_replica(self, drained.replica, std::nullopt); },
  };
}

}  // namespace

caf::actor spawn_supervisor(caf::actor_system& system, const SharedActors& actors,
                            const std::vector<ReplicaSupervisorActor>& replicas) {
  const SupervisorActor supervisor = system.spawn(behavior, actors, replicas);
  // Sent here and not by the new actor: it may start late, after the engine has got its first request.
  for (const auto& replica : replicas) send_anonymously(replica, ConnectRoot{supervisor});
  send_anonymously(actors.router, ConnectRoot{supervisor});
  send_anonymously(actors.outputs, ConnectOutputs{actors.router});
  return caf::actor_cast<caf::actor>(supervisor);
}

}  // namespace pagoda::actors
