#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench_serve/load_generator.hpp"

namespace pagoda::bench_serve {

/// Returns the value below which `percent` of the sorted samples lie, interpolated between two samples; 0 without
/// samples.
double percentile(std::span<const double> sorted, double percent);

/// Samples of one kind of latency in milliseconds, sorted.
class LatencySamples {
 public:
  LatencySamples() = default;
  explicit LatencySamples(std::vector<double> samples_ms);

  double mean() const { return mean_; }
  /// Returns the standard deviation.
  double std() const { return std_; }
  double percentile(double percent) const { return bench_serve::percentile(sorted_, percent); }
  std::span<const double> sorted() const { return sorted_; }

 private:
  std::vector<double> sorted_;
  double mean_ = 0;
  double std_ = 0;
};

/// Limits that a request must keep to count for the goodput, in milliseconds.
struct Slo {
  double ttft_ms = std::numeric_limits<double>::infinity();
  double tpot_ms = std::numeric_limits<double>::infinity();
  double e2el_ms = std::numeric_limits<double>::infinity();
  bool is_set = false;

  /// Adds a limit of the form ttft:MS, tpot:MS or e2el:MS. Error: bad_config, param goodput.
  Status add(std::string_view text);
};

/// Latencies of one request, in milliseconds.
struct RequestLatency {
  double ttft_ms = 0;  ///< time to its first content
  double tpot_ms = 0;  ///< time per token after the first; 0 if there is only one
  double e2el_ms = 0;  ///< time to its last content
};
RequestLatency latency_of(const RequestRecord& record);

/// Numbers of a run. Latencies and tokens are those of completed requests whose clients read at full speed.
struct Statistics {
  std::int64_t completed = 0;
  std::int64_t refused = 0;
  std::int64_t refused_with_retry_after = 0;
  std::int64_t failed = 0;
  std::int64_t completed_slowly = 0;  ///< number completed by clients that read slowly
  std::int64_t never_read = 0;
  std::int64_t left = 0;  ///< number whose client left
  std::int64_t good = 0;  ///< number completed within the SLO
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;
  double duration_s = 0;
  std::int64_t max_concurrent_requests = 0;
  bool was_interrupted = false;
  LatencySamples ttft_ms = {}, tpot_ms = {}, itl_ms = {}, e2el_ms = {};
  LatencySamples refusal_ms = {};                   ///< time from sending to the end of a refusal
  LatencySamples send_delay_ms = {};                ///< delay with which requests were sent after they were due
  std::map<std::string, std::int64_t> errors = {};  ///< number of failures for each error

  double per_second(std::int64_t count) const { return duration_s > 0 ? static_cast<double>(count) / duration_s : 0.0; }
};
Statistics statistics_of(const LoadRun& run, const Slo& slo);

}  // namespace pagoda::bench_serve
