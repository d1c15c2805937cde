#pragma once

/// Sums over replicas, or over engines.

#include <span>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/stats.hpp"

namespace pagoda::metrics {

/// Returns the sums of all counts; worker_pids one after the other; the longest uptime; overloaded if all are; the
/// first health that is not "ok". EngineStats::replicas stays empty.
EngineStats sum_of(std::span<const EngineStats> all);

/// Returns the counts of a replica that is down, without its requests, blocks, speeds and workers.
EngineStats counts_of_ended(EngineStats stats);

/// Adds the counts and histograms of another replica.
void add(StepMetrics& total, const StepMetrics& more);

}  // namespace pagoda::metrics
