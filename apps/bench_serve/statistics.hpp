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

/// The value below which `percent` of the sorted samples lie, between two of them in proportion; 0 of no samples.
double percentile(std::span<const double> sorted, double percent);

/// Samples of one kind of latency, in milliseconds, in order.
class LatencySamples {
 public:
  LatencySamples() = default;
  explicit LatencySamples(std::vector<double> samples_ms);

  double mean() const { return mean_; }
  /// The standard deviation.
  double std() const { return std_; }
  double percentile(double percent) const { return bench_serve::percentile(sorted_, percent); }
  std::span<const double> sorted() const { return sorted_; }

 private:
  std::vector<double> sorted_;
  double mean_ = 0;
  double std_ = 0;
};

/// What a request must keep to count for the goodput, in milliseconds.
struct Slo {
  double ttft_ms = std::numeric_limits<double>::infinity();
  double tpot_ms = std::numeric_limits<double>::infinity();
  double e2el_ms = std::numeric_limits<double>::infinity();
  bool is_set = false;

  /// Adds one of the form ttft:MS, tpot:MS or e2el:MS. Error: bad_config, param goodput.
  Status add(std::string_view text);
};

/// Latencies of one request, in milliseconds.
struct RequestLatency {
  double ttft_ms = 0;  ///< to its first content
  double tpot_ms = 0;  ///< a token behind the first; 0 where there is one only
  double e2el_ms = 0;  ///< to its last content
};
RequestLatency latency_of(const RequestRecord& record);

/// A run in numbers. Latencies and tokens are those of completed requests whose clients read at once.
struct Statistics {
  std::int64_t completed = 0;
  std::int64_t refused = 0;
  std::int64_t refused_with_retry_after = 0;
  std::int64_t failed = 0;
  std::int64_t completed_slowly = 0;  ///< by clients that read slowly
  std::int64_t never_read = 0;
  std::int64_t left = 0;  ///< whose client went
  std::int64_t good = 0;  ///< completed within the SLO
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;
  double duration_s = 0;
  std::int64_t max_concurrent_requests = 0;
  bool was_interrupted = false;
  LatencySamples ttft_ms = {}, tpot_ms = {}, itl_ms = {}, e2el_ms = {};
  LatencySamples refusal_ms = {};                   ///< from sending to the end of a refusal
  LatencySamples send_delay_ms = {};                ///< how much later than due requests were sent
  std::map<std::string, std::int64_t> errors = {};  ///< how often each was the reason of a failure

  double per_second(std::int64_t count) const { return duration_s > 0 ? static_cast<double>(count) / duration_s : 0.0; }
};
Statistics statistics_of(const LoadRun& run, const Slo& slo);

}  // namespace pagoda::bench_serve
