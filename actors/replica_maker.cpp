#include <exception>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// Makes replicas again. It keeps their supervisors, so that none is left over if the engine ends while one is made.
struct ReplicaMakerState {
  ReplicaMakerState() {}

  MakeReplicaAgain make;
  std::shared_ptr<std::map<ReplicaId, ReplicaSupervisorActor>> made;  ///< the last one of each replica
};

using Self = ReplicaMakerActor::stateful_pointer<ReplicaMakerState>;

template <class Handle>
void await_end_of(const Handle& actor) {
  const auto ended = std::make_shared<std::promise<void>>();
  when_ended(actor, [ended] { ended->set_value(); });
  ended->get_future().wait();
}

/// Waits until the replica has given its memory back.
void await_end(const RunningReplica& replica) {
  await_end_of(replica.supervisor);
  const Replica& last = *replica.present;
  await_end_of(last.scheduler);
  await_end_of(last.block_manager);
  for (const WorkerActor& worker : last.devices.workers) await_end_of(worker);
  for (const CacheEngineActor& cache_engine : last.devices.cache_engines) await_end_of(cache_engine);
}

/// Makes a replica. What it throws is an error too: this actor must live on, because other replicas end with it.
Result<RunningReplica> try_to_make(const MakeReplicaAgain& make, ReplicaId id) {
  try {
    return make(id);
  } catch (const std::exception& error) {
    return fail(ErrorCode::out_of_memory, std::string("it cannot be made: ") + error.what());
  }
}

ReplicaMakerActor::behavior_type behavior(Self self, const MakeReplicaAgain& make) {
  auto& initial = state_of(self);
  initial.make = make;
  initial.made = std::make_shared<std::map<ReplicaId, ReplicaSupervisorActor>>();
  self->attach_functor([made = initial.made] {
    for (const auto& [id, supervisor] : *made) end_now(supervisor);
  });
  return {[self](const MakeReplica& message) {
    await_end(message.before);
    const auto& state = state_of(self);
    auto made = try_to_make(state.make, message.replica);
    if (made) state.made->insert_or_assign(message.replica, made->supervisor);
    return reply(MadeReplica{std::move(made)});
  }};
}

}  // namespace

ReplicaMakerActor spawn_replica_maker(caf::actor_system& system, MakeReplicaAgain make) {
  return system.spawn<caf::detached>(behavior, std::move(make));
}

}  // namespace pagoda::actors
