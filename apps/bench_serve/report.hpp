#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/bench_serve/statistics.hpp"

namespace pagoda::bench_serve {

/// What a report holds of the latencies, out of ttft, tpot, itl and e2el.
struct ReportOptions {
  std::vector<std::string> metrics = {"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles = {50, 90, 95, 99};
  bool has_details = false;  ///< lists of every request, too
};

/// Read from "ttft,itl" and "50,99.9". Errors: bad_config, params percentile_metrics and metric_percentiles.
Result<std::vector<std::string>> parse_metrics(const std::string& text);
Result<std::vector<double>> parse_percentiles(const std::string& text);

/// One run as JSON, whose members have the names that vLLM's have. `about` comes first.
nlohmann::ordered_json report_of(const Statistics& statistics, const LoadRun& run, const LoadPlan& plan, const Slo& slo,
                                 const ReportOptions& options, nlohmann::ordered_json about);

/// The same as a table for people, several lines.
std::string table_of(const Statistics& statistics, const LoadPlan& plan, const Slo& slo, const ReportOptions& options);

/// One line for each run of a sweep, below a head.
std::string sweep_table(const std::vector<std::pair<LoadPlan, Statistics>>& runs, const Slo& slo);

/// What makes the numbers doubtful, one line each: requests that were sent late, failures.
std::vector<std::string> doubts_of(const Statistics& statistics, const LoadPlan& plan);

}  // namespace pagoda::bench_serve
