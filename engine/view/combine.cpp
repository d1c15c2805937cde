#include "engine/view/combine.hpp"

namespace pagoda::view {

Queues combine(std::vector<std::pair<ReplicaId, Queues>> replicas) {
  Queues all;
  for (auto& [replica, queues] : replicas) {
    for (LiveRequest& request : queues.requests) {
      request.replica = replica;
      all.requests.push_back(std::move(request));
    }
    for (StepInFlight& step : queues.steps_in_flight) {
      step.replica = replica;
      all.steps_in_flight.push_back(step);
    }
  }
  return all;
}

void add_facts(Queues& queues, const std::vector<RequestFacts::Open>& facts) {
  auto next = facts.begin();  // in the order of the question
  for (LiveRequest& request : queues.requests) {
    if (next == facts.end()) return;
    if (next->id != request.id) continue;
    request.first_token_us = next->first_token_us;
    request.cached_tokens = next->cached_tokens;
    request.preemptions = next->preemptions;
    request.restarts = next->restarts;
    request.draft_tokens = next->draft_tokens;
    request.drafts_accepted = next->drafts_accepted;
    ++next;
  }
}

}  // namespace pagoda::view
