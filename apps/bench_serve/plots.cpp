#include "apps/bench_serve/plots.hpp"

#include <algorithm>

#include "apps/bench_serve/svg_plot.hpp"

namespace pagoda::bench_serve {
namespace {

/// Returns the share of samples up to each value, with few points so that the image stays small.
Series distribution_of(const std::string& name, std::span<const double> sorted) {
  constexpr std::size_t kPoints = 400;
  Series series{.name = name, .points = {}};
  const auto count = std::min(kPoints, sorted.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto rank = (i + 1) * sorted.size() / count;
    series.points.emplace_back(sorted[rank - 1], static_cast<double>(rank) / static_cast<double>(sorted.size()));
  }
  return series;
}

Panel latency_panel(const std::string& title, std::span<const double> sorted) {
  return {.title = title,
          .x_label = "ms",
          .y_label = "share of all up to it",
          .series = {distribution_of("", sorted)},
          .is_log_x = true};
}

template <class Value>
Series against_rate(const std::string& name, const std::vector<std::pair<LoadPlan, Statistics>>& runs, Value value) {
  Series series{.name = name, .points = {}, .has_marks = true};
  for (const auto& [plan, statistics] : runs) {
    if (plan.is_open_loop()) series.points.emplace_back(plan.request_rate, value(statistics));
  }
  std::ranges::sort(series.points);
  return series;
}

}  // namespace

std::string latency_plot(const std::string& title, const Statistics& statistics) {
  const Panel panels[] = {latency_panel("Time to first token", statistics.ttft_ms.sorted()),
                          latency_panel("Inter-token latency", statistics.itl_ms.sorted())};
  return svg_of(title, panels);
}

std::string sweep_plot(const std::string& title, const std::vector<std::pair<LoadPlan, Statistics>>& runs,
                       const Slo& slo) {
  constexpr double kTail = 99;
  const std::string rate = "request rate (requests/s)";
  Panel served{.title = "Requests served", .x_label = rate, .y_label = "requests/s", .series = {}};
  served.series.push_back(
      against_rate("completed", runs, [](const auto& run) { return run.per_second(run.completed); }));
  if (slo.is_set) {
    served.series.push_back(against_rate("goodput", runs, [](const auto& run) { return run.per_second(run.good); }));
  }
  const auto tail = [&](const char* name, LatencySamples Statistics::*samples) {
    return Panel{
        .title = name,
        .x_label = rate,
        .y_label = "ms",
        .series = {against_rate("p99", runs, [=](const auto& run) { return (run.*samples).percentile(kTail); }),
                   against_rate("p50", runs, [=](const auto& run) { return (run.*samples).percentile(50); })}};
  };
  const Panel panels[] = {served, tail("Time to first token", &Statistics::ttft_ms),
                          tail("Inter-token latency", &Statistics::itl_ms)};
  return svg_of(title, panels);
}

}  // namespace pagoda::bench_serve
