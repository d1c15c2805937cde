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

/// What an order of service may look at.
struct QueueEntry {
  RequestId id = 0;  ///< rises with arrival
  std::int64_t priority = 0;
  std::string user;
  std::int64_t num_prompt_tokens = 0;
  TimeUs arrival_us = 0;
};

/// The order in which groups are served: who is admitted next, and who keeps memory when it runs short. Holds the
/// waiting groups; a preempted group comes back with its old entry and so its old place. Not thread-safe.
class WaitingQueue {
 public:
  virtual ~WaitingQueue() = default;
  virtual void push(const QueueEntry& entry) = 0;
  /// Puts a group back that was served before and lost its memory. Its tenant was never away.
  virtual void put_back(const QueueEntry& entry) = 0;
  virtual void erase(const QueueEntry& entry) = 0;
  /// Calls `visit` in serving order until it returns false. `visit` must not change the queue.
  virtual void visit_in_order(const std::function<bool(RequestId)>& visit) const = 0;
  virtual std::size_t size() const = 0;
  /// Strict weak order over running groups: memory is taken from the last.
  virtual bool runs_before(const QueueEntry& a, const QueueEntry& b) const = 0;
  /// Whether a group that waits, or is swapped out, comes in before another one.
  virtual bool comes_in_before(const QueueEntry& a, const QueueEntry& b) const = 0;
  /// Counts tokens that were computed for the user's requests; tokens that are computed again are not charged.
  virtual void charge(const QueueEntry& entry, std::int64_t num_tokens) = 0;

  /// What the order depends on beside the entries.
  virtual void save(Encoder& out) const = 0;
  /// Of a new queue of the same policy. `waiting`: the entries it had. False when the two do not fit.
  virtual bool load(Decoder& in, std::span<const QueueEntry> waiting) = 0;
};

/// fcfs: by arrival. priority: lower first, arrival within a priority; with `priority_aging_s` above 0 by
/// priority * priority_aging_s + arrival time (priorities beyond +-10 million count as these there), so whoever has
/// waited long enough overtakes better priorities that come later, and nobody starves. fair: the tenant (`user`) that
/// was served the fewest tokens comes first, arrival within a tenant (virtual token counters, Sheng et al. 2024,
/// "Fairness in Serving Large Language Models"); a tenant that was away, or is new, is lifted to the least
/// counter of those whose requests wait, or when none waits to that of the tenant that waited last: absence earns
/// nothing, nor does another name.
std::unique_ptr<WaitingQueue> make_waiting_queue(SchedulingPolicy policy, double priority_aging_s = 0);

}  // namespace pagoda::scheduling
