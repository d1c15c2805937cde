#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/bench_serve/statistics.hpp"

namespace pagoda::bench_serve {

/// Returns an SVG image of the distributions of TTFT and ITL of a run.
std::string latency_plot(const std::string& title, const Statistics& statistics);

/// Returns an SVG image of goodput, or requests a second, and the 99th percentiles of TTFT and ITL against the rate.
std::string sweep_plot(const std::string& title, const std::vector<std::pair<LoadPlan, Statistics>>& runs,
                       const Slo& slo);

}  // namespace pagoda::bench_serve
