// Replicas that drain, are down, or come back, and requests that move between replicas.

#include <algorithm>
#include <string>
#include <utility>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

Error two_replicas_lost() {
  return {ErrorCode::device_failed, "two replicas went down while they computed this request; it may be the reason"};
}

tl::unexpected<Error> invalid_replica(std::string why) {
  return fail(Error{ErrorCode::invalid_request, std::move(why), "replica"});
}

std::string name_of(ReplicaId replica) {
  return "replica " + std::to_string(replica);
}

}  // namespace

Status RouterCore::check_is_replica(ReplicaId replica) const {
  if (failure_) return fail(*failure_);
  if (placement_.is_replica(replica)) return {};
  return invalid_replica("there is no " + name_of(replica) + "; the engine has " +
                         std::to_string(placement_.num_replicas()));
}

Status RouterCore::check_drain(ReplicaId replica) const {
  using placement::ReplicaState;
  if (Status known = check_is_replica(replica); !known) return known;
  const std::string name = name_of(replica);
  if (placement_.state_of(replica) == ReplicaState::down) return invalid_replica(name + " is down");
  const bool is_up = placement_.state_of(replica) == ReplicaState::up;
  if (is_up && placement_.count(ReplicaState::up) == 1) {
    return invalid_replica(name + " is the only one that takes requests; drain the engine to end it");
  }
  return {};
}

void RouterCore::count_rows() {
  using placement::ReplicaState;
  const auto num_up = placement_.count(ReplicaState::up);
  const auto num_computing = num_up > 0 ? num_up : placement_.count(ReplicaState::draining);
  ttft_forecast_.set_max_rows(limits_.max_num_seqs * std::max<std::int64_t>(1, num_computing));
}

void RouterCore::drain_replica(ReplicaId replica) {
  placement_.drain(replica);
  count_rows();
}

void RouterCore::resume_replica(ReplicaId replica) {
  placement_.resume(replica);
  count_rows();
}

void RouterCore::replica_down(ReplicaId replica) {
  placement_.take_down(replica);
  count_rows();
}

Status RouterCore::check_start(ReplicaId replica) const {
  using placement::ReplicaState;
  if (Status known = check_is_replica(replica); !known) return known;
  switch (placement_.state_of(replica)) {
    case ReplicaState::up:
      return invalid_replica(name_of(replica) + " is up");
    case ReplicaState::draining:
      return invalid_replica(name_of(replica) + " drains; it can be started when it has ended");
    case ReplicaState::down:
      break;
  }
  return {};
}

void RouterCore::start_replica(ReplicaId replica) {
  placement_.start(replica);
  count_rows();
}

Status RouterCore::check_migration(RequestId id, ReplicaId to) const {
  if (Status known = check_is_replica(to); !known) return known;
  if (!placement_.is_placed(id)) {
    return fail(
        Error{ErrorCode::invalid_request, "no request with the id " + std::to_string(id) + " is at a replica", "id"});
  }
  if (placement_.replica_of(id) == to) {
    return invalid_replica("request " + std::to_string(id) + " is at " + name_of(to) + " already");
  }
  if (placement_.state_of(to) != placement::ReplicaState::up) return invalid_replica(name_of(to) + " is not up");
  return {};
}

RouterCore::Effects RouterCore::migrate(SharedSpec request, ReplicaId from, ReplicaId to) {
  Effects effects;
  const bool none_is_left = placement_.count(placement::ReplicaState::down) == placement_.num_replicas();
  if (failure_ || none_is_left) return effects;
  if (!placement_.is_placed(request->id) || placement_.replica_of(request->id) != from) return effects;
  placement_.place_again(*request, to);
  effects.moved.push_back(std::move(request));
  return effects;
}

RouterCore::Effects RouterCore::hand_over(ReplicaId from, std::vector<SharedSpec> requests,
                                          const std::vector<RequestId>& running) {
  using placement::ReplicaState;
  constexpr std::int32_t kMaxLosses = 2;
  Effects effects;
  if (failure_ || placement_.count(ReplicaState::down) == placement_.num_replicas()) return effects;
  if (placement_.state_of(from) != ReplicaState::down) return effects;
  for (SharedSpec& spec : requests) {
    if (!placement_.is_placed(spec->id) || placement_.replica_of(spec->id) != from) continue;
    const bool was_running = std::ranges::find(running, spec->id) != running.end();
    if (was_running && placement_.count_loss(spec->id) >= kMaxLosses) {
      ++failed_with_replicas_;
      effects.failed.push_back({spec->id, two_replicas_lost()});
      continue;
    }
    placement_.place_again(*spec);
    effects.moved.push_back(std::move(spec));
  }
  return effects;
}

}  // namespace pagoda::routing
