#include <map>
#include <memory>
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

/// Waits until the replica has given its memory back.
void await_end(caf::actor_system& system, const RunningReplica& replica) {
  caf::scoped_actor waiting{system};
  waiting->wait_for(replica.supervisor);
  const Replica& last = *replica.present;
  waiting->wait_for(last.scheduler, last.block_manager);
  for (const WorkerActor& worker : last.devices.workers) waiting->wait_for(worker);
  for (const CacheEngineActor& cache_engine : last.devices.cache_engines) waiting->wait_for(cache_engine);
}

ReplicaMakerActor::behavior_type behavior(Self self, const MakeReplicaAgain& make) {
  auto& initial = state_of(self);
  initial.make = make;
  initial.made = std::make_shared<std::map<ReplicaId, ReplicaSupervisorActor>>();
  self->attach_functor([made = initial.made] {
    for (const auto& [id, supervisor] : *made) end_now(supervisor);
  });
  return {[self](const MakeReplica& message) {
    await_end(self->system(), message.before);
    const auto& state = state_of(self);
    auto made = state.make(message.replica);
    if (made) state.made->insert_or_assign(message.replica, made->supervisor);
    return reply(MadeReplica{std::move(made)});
  }};
}

}  // namespace

ReplicaMakerActor spawn_replica_maker(caf::actor_system& system, MakeReplicaAgain make) {
  return system.spawn<caf::detached>(behavior, std::move(make));
}

}  // namespace pagoda::actors
