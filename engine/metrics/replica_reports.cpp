#include "engine/metrics/replica_reports.hpp"

#include <array>
#include <utility>

#include "engine/metrics/sums.hpp"

namespace pagoda::metrics {

ReplicaReports::ReplicaReports(std::size_t num_replicas) : replicas_(num_replicas) {
  earlier_.stats = counts_of_ended({});
}

void ReplicaReports::ended(ReplicaId replica, std::string why) {
  of(replica).ended_because = std::move(why);
  of(replica).is_starting = false;
}

void ReplicaReports::started(ReplicaId replica) {
  const SchedulerMetrics& last = of(replica).last;
  earlier_.stats = sum_of(std::array{earlier_.stats, counts_of_ended(last.stats)});
  add(earlier_.steps, last.steps);
  of(replica) = {};
}

ReplicaStats ReplicaReports::facts_of(ReplicaId id, const One& replica) {
  const EngineStats& stats = replica.last.stats;
  ReplicaStats facts{.replica = id, .health = stats.health, .worker_restarts_total = stats.worker_restarts_total};
  if (!replica.ended_because.empty()) {
    facts.state = replica.is_starting ? "starting" : "down";
    facts.health = replica.ended_because;
    return facts;
  }
  if (replica.is_draining) facts.state = "draining";
  facts.requests_waiting = stats.requests_waiting;
  facts.requests_running = stats.requests_running;
  facts.requests_swapped = stats.requests_swapped;
  facts.device_blocks_total = stats.device_blocks_total;
  facts.device_blocks_free = stats.device_blocks_free;
  facts.device_blocks_cached = stats.device_blocks_cached;
  facts.worker_pids = stats.worker_pids;
  return facts;
}

EngineStats ReplicaReports::stats() const {
  std::vector<EngineStats> all{earlier_.stats};
  bool is_any_healthy = false;
  for (const One& replica : replicas_) {
    const bool has_ended = !replica.ended_because.empty();
    all.push_back(has_ended ? counts_of_ended(replica.last.stats) : replica.last.stats);
    is_any_healthy |= !has_ended && all.back().health == EngineStats{}.health;
  }
  EngineStats sum = sum_of(all);
  if (is_any_healthy) sum.health = EngineStats{}.health;
  for (const One& replica : replicas_) {
    sum.replicas.push_back(facts_of(static_cast<ReplicaId>(sum.replicas.size()), replica));
  }
  return sum;
}

StepMetrics ReplicaReports::steps() const {
  StepMetrics sum = earlier_.steps;
  for (const One& replica : replicas_) add(sum, replica.last.steps);
  return sum;
}

}  // namespace pagoda::metrics
