#pragma once

#include <vector>

#include "engine/scheduling/waiting_queue.hpp"

namespace pagoda::scheduling {

/// Returns the waiting requests, in the order in which the queue would serve them.
inline std::vector<RequestId> order(const WaitingQueue& queue) {
  std::vector<RequestId> ids;
  queue.visit_in_order([&](RequestId id) {
    ids.push_back(id);
    return true;
  });
  return ids;
}

}  // namespace pagoda::scheduling
