#pragma once

#include <string>
#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/stats.hpp"
#include "engine/types.hpp"

namespace pagoda::metrics {

/// Keeps what each replica of an engine has last reported, and sums it. What a replica counted stays in the sums when
/// the replica has ended, so that no count falls. A plain value.
class ReplicaReports {
 public:
  explicit ReplicaReports(std::size_t num_replicas);

  /// Take a report. Call them in the order in which the replica made its reports; otherwise counts would fall.
  void reported(ReplicaId replica, EngineStats stats) { of(replica).last.stats = std::move(stats); }
  void reported(ReplicaId replica, SchedulerMetrics metrics) { of(replica).last = std::move(metrics); }
  void drains(ReplicaId replica) { of(replica).is_draining = true; }
  void resumes(ReplicaId replica) { of(replica).is_draining = false; }
  /// `why`: a reason for the stats; not empty. Also when a start of the replica has failed.
  void ended(ReplicaId replica, std::string why);
  /// A replica that has ended is being started again.
  void starts(ReplicaId replica) { of(replica).is_starting = true; }
  /// It takes requests. Its new scheduler counts from 0; what was counted before stays in the sums.
  void started(ReplicaId replica);

  /// Returns the sum of the reports, with a list of the replicas. It is healthy while any replica can run steps.
  EngineStats stats() const;
  StepMetrics steps() const;

 private:
  struct One {
    SchedulerMetrics last;
    bool is_draining = false;
    std::string ended_because;  ///< empty: it has not ended
    bool is_starting = false;
  };
  One& of(ReplicaId replica) { return replicas_.at(static_cast<std::size_t>(replica)); }
  static ReplicaStats facts_of(ReplicaId id, const One& replica);

  std::vector<One> replicas_;
  SchedulerMetrics earlier_;  ///< counts of replicas before they were started again
};

}  // namespace pagoda::metrics
