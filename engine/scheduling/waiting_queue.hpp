#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/config.hpp"
#include "engine/step/codec.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The facts that an order of service may depend on.
struct QueueEntry {
  RequestId id = 0;  ///< rises with arrival
  std::int64_t priority = 0;
  std::string user;
  std::int64_t num_prompt_tokens = 0;
  TimeUs arrival_us = 0;
};

/// The order in which groups are served: which one is admitted next, and which ones keep memory when it runs short.
/// Holds the waiting groups. A preempted group returns with its old entry, and so to its old place. Not thread-safe.
class WaitingQueue {
 public:
  virtual ~WaitingQueue() = default;
  virtual void push(const QueueEntry& entry) = 0;
  /// Puts back a group that was served before and lost its memory. Its tenant does not count as away meanwhile.
  virtual void put_back(const QueueEntry& entry) = 0;
  virtual void erase(const QueueEntry& entry) = 0;
  /// Calls `visit` in serving order until it returns false. `visit` must not change the queue.
  virtual void visit_in_order(const std::function<bool(RequestId)>& visit) const = 0;
  virtual std::size_t size() const = 0;
  /// Returns whether running group `a` is served before `b`; memory is taken from the last. A strict weak order.
  virtual bool runs_before(const QueueEntry& a, const QueueEntry& b) const = 0;
  /// Returns whether `a`, which waits or is swapped out, is admitted before `b`.
  virtual bool comes_in_before(const QueueEntry& a, const QueueEntry& b) const = 0;
  /// Counts tokens that were computed for the user's requests. Do not count tokens that are computed again.
  virtual void charge(const QueueEntry& entry, std::int64_t num_tokens) = 0;

  /// Writes the state that the order depends on beside the entries.
  virtual void save(Encoder& out) const = 0;
  /// Restores a saved state. The queue must be new and have the same policy. `waiting`: the entries that it had.
  /// Returns false if the two do not fit.
  virtual bool load(Decoder& in, std::span<const QueueEntry> waiting) = 0;
};

/// fcfs: by arrival. priority: lower values first, and by arrival within a priority. With `priority_aging_s` above 0
/// the order is by priority * priority_aging_s + arrival time (priorities beyond +-10 million count as +-10 million
/// there). So a request that has waited long enough overtakes later requests of better priority, and none starves.
/// fair: the tenant (`user`) that was served the fewest tokens comes first; of such tenants the one whose first waiting
/// request arrived first; and by arrival within a tenant (virtual token counters, Sheng et al. 2024, "Fairness in
/// Serving Large Language Models"). The counter of a new or returning tenant is raised to the lowest counter of the
/// waiting tenants, or, if none waits, to the counter of the tenant that waited last. So a tenant gains nothing by
/// absence or by another name.
std::unique_ptr<WaitingQueue> make_waiting_queue(SchedulingPolicy policy, double priority_aging_s = 0);

}  // namespace pagoda::scheduling
