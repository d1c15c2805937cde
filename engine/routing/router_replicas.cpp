// Replicas that drain or are down.

#include <string>
#include <utility>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {

Status RouterCore::check_drain(ReplicaId replica) const {
  using placement::ReplicaState;
  const auto refuse = [](const std::string& why) { return fail(Error{ErrorCode::invalid_request, why, "replica"}); };
  if (failure_) return fail(*failure_);
  const std::string name = "replica " + std::to_string(replica);
  if (!placement_.is_replica(replica)) {
    return refuse("there is no " + name + "; the engine has " + std::to_string(placement_.num_replicas()));
  }
  if (placement_.state_of(replica) == ReplicaState::down) return refuse(name + " is down");
  const bool is_up = placement_.state_of(replica) == ReplicaState::up;
  if (is_up && placement_.count(ReplicaState::up) == 1) {
    return refuse(name + " is the only one that takes requests; drain the engine to end it");
  }
  return {};
}

RouterCore::Effects RouterCore::hand_over(std::vector<SharedSpec> requests) {
  using placement::ReplicaState;
  Effects effects;
  if (failure_ || placement_.count(ReplicaState::down) == placement_.num_replicas()) return effects;
  for (SharedSpec& spec : requests) {
    const bool is_in_engine = placement_.is_placed(spec->id);
    if (!is_in_engine || placement_.state_of(placement_.replica_of(spec->id)) != ReplicaState::down) continue;
    placement_.place_again(*spec);
    effects.moved.push_back(std::move(spec));
  }
  return effects;
}

}  // namespace pagoda::routing
