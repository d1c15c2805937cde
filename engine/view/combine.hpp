#pragma once

#include <utility>
#include <vector>

#include "engine/view/engine_view.hpp"

namespace pagoda::view {

/// Returns the queues of all replicas, one after the other, each entry with its replica.
Queues combine(std::vector<std::pair<ReplicaId, Queues>> replicas);

/// Adds the output processor's facts to the live requests. `facts`: in the order of the requests, of some of them.
void add_facts(Queues& queues, const std::vector<RequestFacts::Open>& facts);

}  // namespace pagoda::view
