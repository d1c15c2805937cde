#include <algorithm>
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
/// When a replica fails and another one is left: (1) The router gets the reason, takes the last counts of the replica
/// and moves its requests. (2) Then it asks for the end of the replica, as for one that is drained. When none is left,
/// the engine fails.
///
/// When the engine fails: (1) The router gets the reason, refuses requests from then on, and passes the reason on to
/// the output processor, which ends every live request and then itself. All other actors are ended. (2) So when the
/// supervisor ends, every live request has got its terminal output. The router stays for later questions.
struct SupervisorState {
  SupervisorState() {}

  struct Kept {
    SharedActors actors;
    std::vector<ReplicaSupervisorActor> replicas;  ///< null: the replica has ended
    std::vector<bool> have_failed;                 ///< by replica; those that have failed wait for their end
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

/// Returns whether a replica can go on.
bool is_left(const SupervisorState::Kept& kept, std::size_t id) {
  return kept.replicas.at(id) && !kept.have_failed.at(id);
}

/// Returns whether this replica can go on, and no other one.
bool is_last(const SupervisorState::Kept& kept, std::size_t id) {
  std::size_t num_left = 0;
  for (std::size_t one = 0; one < kept.replicas.size(); ++one) num_left += is_left(kept, one) ? 1 : 0;
  return num_left == 1 && is_left(kept, id);
}

/// The engine goes on without a replica, or fails if no other one is left. Does nothing if the replica has ended or
/// failed before.
void fail_replica(Self self, ReplicaId id, const Error& error) {
  auto& state = state_of(self);
  const auto index = static_cast<std::size_t>(id);
  if (state.failing || !is_left(*state.kept, index)) return;
  if (is_last(*state.kept, index)) return fail_engine(self, error);
  spdlog::error("replica {} is down, the engine goes on without it: {}", id, error.message);
  state.kept->have_failed[index] = true;
  send(self, state.kept->actors.router, ReplicaDown{error, id});
}

/// Ends a replica, unless no other one is left: the others may have failed just before.
Status end_replica(Self self, ReplicaId id) {
  auto& state = state_of(self);
  const auto index = static_cast<std::size_t>(id);
  if (state.failing) return tl::unexpected(actor_ended());
  if (is_last(*state.kept, index)) {
    return fail(Error{ErrorCode::invalid_request, "no other replica is left", "replica"});
  }
  if (auto& its = state.kept->replicas.at(index)) end_now(std::exchange(its, nullptr));
  return {};
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
    if (its != replicas.end()) fail_replica(self, static_cast<ReplicaId>(its - replicas.begin()), actor_ended());
  }
}

SupervisorActor::behavior_type behavior(Self self, const SharedActors& actors,
                                        const std::vector<ReplicaSupervisorActor>& replicas) {
  auto& state = state_of(self);
  state.kept = std::make_shared<SupervisorState::Kept>(
      SupervisorState::Kept{actors, replicas, std::vector<bool>(replicas.size(), false)});
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
      [self](const ReplicaFailed& failed) { fail_replica(self, failed.replica, failed.error); },
      [self](const EndReplica& message) { return reply(ReplicaDrained{end_replica(self, message.replica)}); },
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
