#include "apps/bench_serve/report.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace pagoda::bench_serve {
namespace {

using nlohmann::ordered_json;

struct Metric {
  const char* name;
  const char* title;
  LatencySamples Statistics::*samples;
};
constexpr Metric kMetrics[] = {{"ttft", "time to first token", &Statistics::ttft_ms},
                               {"tpot", "time per output token", &Statistics::tpot_ms},
                               {"itl", "inter-token latency", &Statistics::itl_ms},
                               {"e2el", "end-to-end latency", &Statistics::e2el_ms}};

/// Returns the metrics that `options` names.
std::vector<Metric> metrics_of(const ReportOptions& options) {
  std::vector<Metric> metrics;
  for (const auto& metric : kMetrics) {
    if (std::ranges::count(options.metrics, metric.name) > 0) metrics.push_back(metric);
  }
  return metrics;
}

/// Returns the percentage as text: "99", "99.9".
std::string percent_text(double percent) {
  return fmt::format("{:g}", percent);
}

/// Returns the number, or "inf", because JSON has no infinity.
ordered_json number_or_inf(double value) {
  return std::isinf(value) ? ordered_json("inf") : ordered_json(value);
}

std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

void add_latencies(ordered_json& report, const Statistics& statistics, const ReportOptions& options) {
  for (const auto& metric : metrics_of(options)) {
    const auto& samples = statistics.*metric.samples;
    const std::string key = std::string(metric.name) + "_ms";
    report["mean_" + key] = samples.mean();
    report["median_" + key] = samples.percentile(50);
    report["std_" + key] = samples.std();
    for (const double percent : options.percentiles) {
      report["p" + percent_text(percent) + "_" + key] = samples.percentile(percent);
    }
  }
}

void add_details(ordered_json& report, const LoadRun& run) {
  for (const char* list :
       {"input_lens", "output_lens", "start_times", "ttfts", "itls", "e2els", "statuses", "errors"}) {
    report[list] = ordered_json::array();
  }
  for (const auto& record : run.records) {
    report["input_lens"].push_back(record.prompt_tokens);
    report["output_lens"].push_back(record.output_tokens);
    report["start_times"].push_back(record.begin_s);
    report["ttfts"].push_back(record.first_s > 0 ? record.first_s - record.begin_s : 0.0);
    report["itls"].push_back(record.gaps_s);
    report["e2els"].push_back(record.end_s - record.begin_s);
    report["statuses"].push_back(record.status);
    report["errors"].push_back(record.error);
  }
}

std::string row(const char* name, const std::string& value) {
  return fmt::format("{:<32}{:>12}\n", name, value);
}
std::string row(const char* name, std::int64_t value) {
  return row(name, std::to_string(value));
}
std::string row(const char* name, double value) {
  return row(name, fmt::format("{:.2f}", value));
}

std::string latency_rows(const Statistics& statistics, const ReportOptions& options) {
  std::string text = fmt::format("\n{:<32}{:>12}", "ms", "mean");
  for (const double percent : options.percentiles) text += fmt::format("{:>12}", "p" + percent_text(percent));
  text += '\n';
  for (const auto& metric : metrics_of(options)) {
    const auto& samples = statistics.*metric.samples;
    text += fmt::format("{:<32}{:>12.2f}", metric.title, samples.mean());
    for (const double percent : options.percentiles) text += fmt::format("{:>12.2f}", samples.percentile(percent));
    text += '\n';
  }
  return text;
}

}  // namespace

Result<std::vector<std::string>> parse_metrics(const std::string& text) {
  auto pieces = pieces_of(text);
  for (const auto& piece : pieces) {
    const bool is_known = std::ranges::any_of(kMetrics, [&](const Metric& metric) { return piece == metric.name; });
    if (!is_known) {
      return fail(
          ErrorCode::bad_config,
          "percentile_metrics must be names of ttft, tpot, itl and e2el, separated by commas, not \"" + piece + "\"",
          "percentile_metrics");
    }
  }
  return pieces;
}

Result<std::vector<double>> parse_percentiles(const std::string& text) {
  constexpr double kAll = 100;
  std::vector<double> percentiles;
  for (const auto& piece : pieces_of(text)) {
    double& percent = percentiles.emplace_back();
    const auto read = std::from_chars(piece.data(), piece.data() + piece.size(), percent);
    if (read.ec != std::errc() || read.ptr != piece.data() + piece.size() || !(percent >= 0 && percent <= kAll)) {
      return fail(ErrorCode::bad_config,
                  "metric_percentiles must be numbers from 0 to 100, separated by commas, not \"" + piece + "\"",
                  "metric_percentiles");
    }
  }
  return percentiles;
}

ordered_json report_of(const Statistics& statistics, const LoadRun& run, const LoadPlan& plan, const Slo& slo,
                       const ReportOptions& options, ordered_json about) {
  auto report = std::move(about);
  report["request_rate"] = number_or_inf(plan.request_rate);
  report["burstiness"] = number_or_inf(plan.burstiness);
  report["max_concurrency"] = plan.max_concurrency > 0 ? ordered_json(plan.max_concurrency) : ordered_json();
  report["num_prompts"] = run.records.size();
  report["duration"] = statistics.duration_s;
  report["completed"] = statistics.completed;
  report["failed"] = statistics.failed;
  report["refused"] = statistics.refused;
  report["refused_with_retry_after"] = statistics.refused_with_retry_after;
  report["p99_refusal_ms"] = statistics.refusal_ms.percentile(99);
  report["aborted"] = statistics.left;
  report["completed_by_slow_readers"] = statistics.completed_slowly;
  report["never_read"] = statistics.never_read;
  report["interrupted"] = statistics.was_interrupted;
  report["total_input_tokens"] = statistics.total_input_tokens;
  report["total_output_tokens"] = statistics.total_output_tokens;
  report["request_throughput"] = statistics.per_second(statistics.completed);
  report["request_goodput"] = slo.is_set ? ordered_json(statistics.per_second(statistics.good)) : ordered_json();
  report["output_throughput"] = statistics.per_second(statistics.total_output_tokens);
  report["total_token_throughput"] =
      statistics.per_second(statistics.total_input_tokens + statistics.total_output_tokens);
  report["max_concurrent_requests"] = statistics.max_concurrent_requests;
  report["p99_send_delay_ms"] = statistics.send_delay_ms.percentile(99);
  add_latencies(report, statistics, options);
  report["failures"] = statistics.errors;
  if (options.has_details) add_details(report, run);
  return report;
}

std::string table_of(const Statistics& statistics, const LoadPlan& plan, const Slo& slo, const ReportOptions& options) {
  std::string text;
  if (plan.is_open_loop()) text += row("request rate (requests/s)", plan.request_rate);
  if (plan.max_concurrency > 0) text += row("most at a time", plan.max_concurrency);
  text += row("duration (s)", statistics.duration_s);
  text += row("completed requests", statistics.completed);
  if (statistics.failed > 0) text += row("failed requests", statistics.failed);
  if (statistics.refused > 0) {
    text += row("refused requests", statistics.refused);
    text += row("  with Retry-After", statistics.refused_with_retry_after);
    text += row("  p99 of a refusal (ms)", statistics.refusal_ms.percentile(99));
  }
  if (statistics.left > 0) text += row("aborted by the client", statistics.left);
  if (statistics.completed_slowly > 0) text += row("completed by slow readers", statistics.completed_slowly);
  if (statistics.never_read > 0) text += row("never read", statistics.never_read);
  text += row("input tokens", statistics.total_input_tokens);
  text += row("output tokens", statistics.total_output_tokens);
  text += row("requests/s", statistics.per_second(statistics.completed));
  if (slo.is_set) text += row("goodput (requests/s)", statistics.per_second(statistics.good));
  text += row("output tokens/s", statistics.per_second(statistics.total_output_tokens));
  text += row("requests at a time, at most", statistics.max_concurrent_requests);
  return text + latency_rows(statistics, options);
}

std::string sweep_table(const std::vector<std::pair<LoadPlan, Statistics>>& runs, const Slo& slo) {
  std::string text = fmt::format("\n{:>12}{:>12}{:>12}{:>12}{:>14}{:>14}{:>14}\n", "rate", "requests/s",
                                 slo.is_set ? "goodput" : "", "refused", "TTFT p99 ms", "ITL p99 ms", "E2EL p99 ms");
  for (const auto& [plan, statistics] : runs) {
    const auto goodput = slo.is_set ? fmt::format("{:.2f}", statistics.per_second(statistics.good)) : "";
    text += fmt::format("{:>12g}{:>12.2f}{:>12}{:>12}{:>14.2f}{:>14.2f}{:>14.2f}\n", plan.request_rate,
                        statistics.per_second(statistics.completed), goodput, statistics.refused,
                        statistics.ttft_ms.percentile(99), statistics.itl_ms.percentile(99),
                        statistics.e2el_ms.percentile(99));
  }
  return text;
}

std::vector<std::string> warnings_of(const Statistics& statistics, const LoadPlan& plan) {
  constexpr double kLateMs = 10;
  std::vector<std::string> warnings;
  const double late = statistics.send_delay_ms.percentile(99);
  if (plan.is_open_loop() && plan.max_concurrency == 0 && late > kLateMs) {
    warnings.push_back(
        fmt::format("requests were sent late (p99 {:.1f} ms): this client is too slow for the load, and its "
                    "delay is part of the latencies",
                    late));
  }
  std::vector<std::pair<std::int64_t, std::string>> failures;
  for (const auto& [error, count] : statistics.errors) failures.emplace_back(count, error);
  std::ranges::sort(failures, std::greater());
  constexpr std::size_t kMost = 5;
  for (std::size_t i = 0; i < std::min(kMost, failures.size()); ++i) {
    warnings.push_back(fmt::format("{} requests failed: {}", failures[i].first, failures[i].second));
  }
  return warnings;
}

}  // namespace pagoda::bench_serve
