#include "apps/bench_serve/statistics.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "apps/bench_serve/report.hpp"

namespace pagoda::bench_serve {
namespace {

/// One with `gap_s` between its tokens.
RequestRecord completed(double begin_s, double ttft_s, double gap_s, std::int64_t tokens) {
  RequestRecord record{.outcome = Outcome::completed, .begin_s = begin_s, .sent_s = begin_s};
  record.first_s = begin_s + ttft_s;
  record.last_s = record.first_s + gap_s * static_cast<double>(tokens - 1);
  record.end_s = record.last_s + 0.001;
  record.gaps_s.assign(static_cast<std::size_t>(tokens - 1), static_cast<float>(gap_s));
  record.prompt_tokens = 10;
  record.output_tokens = tokens;
  record.status = 200;
  return record;
}

TEST(Percentile, LiesBetweenSamplesInProportion) {
  const std::vector<double> sorted{10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(percentile(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(percentile(sorted, 50), 25);
  EXPECT_DOUBLE_EQ(percentile(sorted, 75), 32.5);
  EXPECT_DOUBLE_EQ(percentile(sorted, 99), 39.7);
  EXPECT_DOUBLE_EQ(percentile(sorted, 100), 40);
  EXPECT_EQ(percentile(std::vector<double>{7}, 99), 7);
  EXPECT_EQ(percentile({}, 99), 0);
}

TEST(LatencySamples, MeanAndDeviation) {
  const LatencySamples samples({4, 2, 4, 4, 5, 5, 7, 9});
  EXPECT_DOUBLE_EQ(samples.mean(), 5);
  EXPECT_DOUBLE_EQ(samples.std(), 2);
  EXPECT_EQ(samples.sorted().front(), 2);
  EXPECT_EQ(LatencySamples().mean(), 0);
}

TEST(Statistics, LatenciesOfARequest) {
  const auto latency = latency_of(completed(5, 0.2, 0.05, 11));
  EXPECT_NEAR(latency.ttft_ms, 200, 1e-6);
  EXPECT_NEAR(latency.tpot_ms, 50, 1e-6);
  EXPECT_NEAR(latency.e2el_ms, 700, 1e-6);
  EXPECT_EQ(latency_of(completed(5, 0.2, 0, 1)).tpot_ms, 0);
}

TEST(Statistics, GoodputIsOfThoseThatKeepEveryLimit) {
  LoadRun run{.records = {completed(0, 0.1, 0.01, 11), completed(0, 0.3, 0.01, 11), completed(0, 0.1, 0.03, 11),
                          completed(0, 0.1, 0, 1)},
              .duration_s = 2};
  Slo slo;
  EXPECT_EQ(statistics_of(run, slo).good, 4);
  ASSERT_TRUE(slo.add("ttft:200"));
  EXPECT_EQ(statistics_of(run, slo).good, 3);
  ASSERT_TRUE(slo.add("tpot:20"));
  EXPECT_EQ(statistics_of(run, slo).good, 2);
  ASSERT_TRUE(slo.add("e2el:150"));
  const auto statistics = statistics_of(run, slo);
  EXPECT_EQ(statistics.good, 1);
  EXPECT_DOUBLE_EQ(statistics.per_second(statistics.good), 0.5);
}

TEST(Statistics, LimitsAreReadFromText) {
  for (const char* wrong : {"", "ttft", "ttft:", "ttft:x", "ttft:0", "ttft:-1", "itl:5", "ttft:1:2", "ttft:nan"}) {
    Slo slo;
    const auto status = slo.add(wrong);
    ASSERT_FALSE(status) << wrong;
    EXPECT_EQ(status.error().param, "goodput");
    EXPECT_FALSE(slo.is_set);
  }
}

TEST(Statistics, RefusalsFailuresAndLostClientsAreNoLatencies) {
  LoadRun run{.records = {completed(0, 0.1, 0.01, 11)}, .duration_s = 1};
  run.records.push_back(
      {.outcome = Outcome::refused, .begin_s = 1, .sent_s = 1, .end_s = 1.02, .has_retry_after = true});
  run.records.push_back({.outcome = Outcome::refused, .begin_s = 1, .sent_s = 1.5, .end_s = 1.52});
  run.records.push_back({.outcome = Outcome::failed, .error = "HTTP 500: x"});
  run.records.push_back({.outcome = Outcome::failed, .error = "HTTP 500: x"});
  run.records.push_back({.client = Client::disconnects, .outcome = Outcome::left});
  run.records.push_back({.client = Client::never_reads, .outcome = Outcome::left});
  auto slow = completed(0, 9, 9, 11);
  slow.client = Client::reads_slowly;
  run.records.push_back(slow);
  const auto statistics = statistics_of(run, {});
  EXPECT_EQ(statistics.completed, 1);
  EXPECT_EQ(statistics.refused, 2);
  EXPECT_EQ(statistics.refused_with_retry_after, 1);
  EXPECT_NEAR(statistics.refusal_ms.percentile(100), 20, 1e-9);
  EXPECT_EQ(statistics.failed, 2);
  EXPECT_EQ(statistics.errors.at("HTTP 500: x"), 2);
  EXPECT_EQ(statistics.left, 1);
  EXPECT_EQ(statistics.never_read, 1);
  EXPECT_EQ(statistics.completed_slowly, 1);
  EXPECT_EQ(statistics.ttft_ms.sorted().size(), 1);
  EXPECT_EQ(statistics.itl_ms.sorted().size(), 10);
  EXPECT_EQ(statistics.total_output_tokens, 11);
}

TEST(Report, HasTheNamesThatVllmGives) {
  LoadRun run{.records = {completed(0, 0.1, 0.01, 11), completed(0, 0.3, 0.01, 11)}, .duration_s = 2};
  Slo slo;
  ASSERT_TRUE(slo.add("ttft:200"));
  const auto statistics = statistics_of(run, slo);
  const auto report = report_of(statistics, run, {}, slo, {.percentiles = {99, 99.9}, .has_details = true}, {});
  EXPECT_EQ(report["request_rate"], "inf");
  EXPECT_EQ(report["completed"], 2);
  EXPECT_DOUBLE_EQ(report["request_goodput"], 0.5);
  EXPECT_DOUBLE_EQ(report["output_throughput"], 11);
  EXPECT_DOUBLE_EQ(report["total_token_throughput"], 21);
  EXPECT_NEAR(report["mean_ttft_ms"], 200, 1e-6);
  EXPECT_NEAR(report["p99_ttft_ms"], 298, 1e-6);
  EXPECT_TRUE(report.contains("p99.9_itl_ms"));
  EXPECT_TRUE(report.contains("std_e2el_ms"));
  EXPECT_EQ(report["itls"].size(), 2);
  EXPECT_EQ(report["output_lens"][1], 11);
}

TEST(Report, TellsOnlyTheMetricsThatAreAskedFor) {
  LoadRun run{.records = {completed(0, 0.1, 0.01, 11)}, .duration_s = 2};
  const auto report = report_of(statistics_of(run, {}), run, {}, {}, {.metrics = {"itl"}}, {});
  EXPECT_TRUE(report.contains("p99_itl_ms"));
  EXPECT_FALSE(report.contains("p99_ttft_ms"));
  EXPECT_TRUE(report["request_goodput"].is_null());
  EXPECT_FALSE(report.contains("ttfts"));
}

TEST(Report, MetricsAndPercentilesAreReadFromText) {
  EXPECT_EQ(parse_metrics("ttft,e2el")->size(), 2);
  EXPECT_EQ(parse_metrics("ttft,foo").error().param, "percentile_metrics");
  EXPECT_FALSE(parse_metrics(""));
  EXPECT_EQ(*parse_percentiles("0,99.9,100"), (std::vector<double>{0, 99.9, 100}));
  for (const char* wrong : {"", "x", "101", "-1", "50,", "nan"}) {
    EXPECT_EQ(parse_percentiles(wrong).error().param, "metric_percentiles") << wrong;
  }
}

TEST(Report, DoubtsWhatALateClientMeasured) {
  LoadRun run{.records = {completed(0, 0.1, 0.01, 11)}, .duration_s = 2};
  run.records[0].sent_s += 0.05;
  const LoadPlan open{.request_rate = 5};
  EXPECT_EQ(warnings_of(statistics_of(run, {}), open).size(), 1);
  run.records[0].sent_s -= 0.045;
  EXPECT_TRUE(warnings_of(statistics_of(run, {}), open).empty());
}

}  // namespace
}  // namespace pagoda::bench_serve
