#include "apps/bench_serve/statistics.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

namespace pagoda::bench_serve {
namespace {

constexpr double kMsPerSecond = 1000;

/// Samples of all kinds, while they are collected.
struct Gathered {
  std::vector<double> ttft, tpot, itl, e2el, refusal, send_delay;
};

void add_completed(const RequestRecord& record, const Slo& slo, Statistics& statistics, Gathered& samples) {
  const auto latency = latency_of(record);
  ++statistics.completed;
  statistics.total_input_tokens += record.prompt_tokens;
  statistics.total_output_tokens += record.output_tokens;
  samples.ttft.push_back(latency.ttft_ms);
  samples.e2el.push_back(latency.e2el_ms);
  if (record.output_tokens > 1) samples.tpot.push_back(latency.tpot_ms);
  for (const float gap : record.gaps_s) samples.itl.push_back(static_cast<double>(gap) * kMsPerSecond);
  const bool is_good =
      latency.ttft_ms <= slo.ttft_ms && latency.tpot_ms <= slo.tpot_ms && latency.e2el_ms <= slo.e2el_ms;
  statistics.good += is_good ? 1 : 0;
}

void add_record(const RequestRecord& record, const Slo& slo, Statistics& statistics, Gathered& samples) {
  samples.send_delay.push_back((record.sent_s - record.begin_s) * kMsPerSecond);
  switch (record.outcome) {
    case Outcome::completed:
      if (record.client == Client::reads_slowly) {
        ++statistics.completed_slowly;
      } else {
        add_completed(record, slo, statistics, samples);
      }
      return;
    case Outcome::refused:
      ++statistics.refused;
      statistics.refused_with_retry_after += record.has_retry_after ? 1 : 0;
      samples.refusal.push_back((record.end_s - record.sent_s) * kMsPerSecond);
      return;
    case Outcome::left:
      ++(record.client == Client::never_reads ? statistics.never_read : statistics.left);
      return;
    case Outcome::failed:
      ++statistics.failed;
      ++statistics.errors[record.error];
      return;
  }
}

}  // namespace

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  constexpr double kAll = 100;
  const double place = percent / kAll * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

LatencySamples::LatencySamples(std::vector<double> samples_ms) : sorted_(std::move(samples_ms)) {
  if (sorted_.empty()) return;
  std::ranges::sort(sorted_);
  const auto count = static_cast<double>(sorted_.size());
  mean_ = std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : sorted_) squares += (sample - mean_) * (sample - mean_);
  std_ = std::sqrt(squares / count);
}

Status Slo::add(std::string_view text) {
  const auto colon = std::min(text.find(':'), text.size());
  const auto name = text.substr(0, colon);
  const auto number = text.substr(std::min(colon + 1, text.size()));
  double* field = name == "ttft" ? &ttft_ms : name == "tpot" ? &tpot_ms : name == "e2el" ? &e2el_ms : nullptr;
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  if (field == nullptr || read.ec != std::errc() || read.ptr != number.data() + number.size() || !(value > 0)) {
    return fail(
        ErrorCode::bad_config,
        "goodput must be ttft:MS, tpot:MS or e2el:MS, several with commas between, not \"" + std::string(text) + "\"",
        "goodput");
  }
  *field = value;
  is_set = true;
  return {};
}

RequestLatency latency_of(const RequestRecord& record) {
  RequestLatency latency{.ttft_ms = (record.first_s - record.begin_s) * kMsPerSecond,
                         .e2el_ms = (record.last_s - record.begin_s) * kMsPerSecond};
  if (record.output_tokens > 1) {
    latency.tpot_ms = (latency.e2el_ms - latency.ttft_ms) / static_cast<double>(record.output_tokens - 1);
  }
  return latency;
}

Statistics statistics_of(const LoadRun& run, const Slo& slo) {
  Statistics statistics;
  Gathered samples;
  for (const auto& record : run.records) add_record(record, slo, statistics, samples);
  statistics.duration_s = run.duration_s;
  statistics.max_concurrent_requests = run.max_concurrent_requests;
  statistics.was_interrupted = run.was_interrupted;
  statistics.ttft_ms = LatencySamples(std::move(samples.ttft));
  statistics.tpot_ms = LatencySamples(std::move(samples.tpot));
  statistics.itl_ms = LatencySamples(std::move(samples.itl));
  statistics.e2el_ms = LatencySamples(std::move(samples.e2el));
  statistics.refusal_ms = LatencySamples(std::move(samples.refusal));
  statistics.send_delay_ms = LatencySamples(std::move(samples.send_delay));
  return statistics;
}

}  // namespace pagoda::bench_serve
