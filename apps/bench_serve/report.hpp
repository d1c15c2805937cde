#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/bench_serve/statistics.hpp"

namespace pagoda::bench_serve {

/// Latencies in a report: any of ttft, tpot, itl and e2el.
struct ReportOptions {
  std::vector<std::string> metrics = {"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles = {50, 90, 95, 99};
  bool has_details = false;  ///< whether it also lists every request
};

/// Parse lists such as "ttft,itl" and "50,99.9". Errors: bad_config, params percentile_metrics and metric_percentiles.
Result<std::vector<std::string>> parse_metrics(const std::string& text);
Result<std::vector<double>> parse_percentiles(const std::string& text);

/// Returns a run as JSON with the member names that vLLM uses. The members of `about` come first.
nlohmann::ordered_json report_of(const Statistics& statistics, const LoadRun& run, const LoadPlan& plan, const Slo& slo,
                                 const ReportOptions& options, nlohmann::ordered_json about);

/// Returns a run as a table of several lines for people.
std::string table_of(const Statistics& statistics, const LoadPlan& plan, const Slo& slo, const ReportOptions& options);

/// Returns a head, and one line for each run of a sweep.
std::string sweep_table(const std::vector<std::pair<LoadPlan, Statistics>>& runs, const Slo& slo);

/// Returns reasons to doubt the numbers, one line each: requests that were sent late, failures.
std::vector<std::string> warnings_of(const Statistics& statistics, const LoadPlan& plan);

}  // namespace pagoda::bench_serve
