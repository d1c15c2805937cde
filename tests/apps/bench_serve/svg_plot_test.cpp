#include "apps/bench_serve/svg_plot.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "apps/bench_serve/plots.hpp"

namespace pagoda::bench_serve {
namespace {

/// The points of every polyline.
std::vector<std::vector<std::pair<double, double>>> lines_of(const std::string& svg) {
  const std::string_view begin = "<polyline points=\"";
  std::vector<std::vector<std::pair<double, double>>> lines;
  for (std::size_t at = svg.find(begin); at != svg.npos; at = svg.find(begin, at)) {
    at += begin.size();
    std::istringstream text(svg.substr(at, svg.find('"', at) - at));
    auto& points = lines.emplace_back();
    double x = 0;
    double y = 0;
    for (char comma = 0; text >> x >> comma >> y;) points.emplace_back(x, y);
  }
  return lines;
}

TEST(SvgPlot, PlacesPointsInProportion) {
  const Panel panel{
      .title = "t", .x_label = "x", .y_label = "y", .series = {{"s", {{0, 0}, {5, 50}, {10, 100}}, true}}};
  const auto svg = svg_of("title", std::span(&panel, 1));
  const auto lines = lines_of(svg);
  ASSERT_EQ(lines.size(), 1);
  ASSERT_EQ(lines[0].size(), 3);
  EXPECT_NEAR(lines[0][1].first, (lines[0][0].first + lines[0][2].first) / 2, 0.1);
  EXPECT_NEAR(lines[0][1].second, (lines[0][0].second + lines[0][2].second) / 2, 0.1);
  EXPECT_GT(lines[0][0].second, lines[0][2].second) << "y grows downwards in an image";
  EXPECT_NE(svg.find("<circle"), std::string::npos);
  for (const char* word : {">title<", ">t<", ">x<", ">y<", ">s<", ">100<"}) {
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  }
}

TEST(SvgPlot, LogarithmicAxesHaveEqualDecades) {
  const Panel panel{
      .title = "", .x_label = "", .y_label = "", .series = {{"", {{1, 1}, {10, 1}, {100, 1}}}}, .is_log_x = true};
  const auto points = lines_of(svg_of("", std::span(&panel, 1))).at(0);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.2);
  EXPECT_GT(points[1].first, points[0].first + 10);
}

TEST(SvgPlot, WhatIsEmptyOrZeroIsStillAnImage) {
  const Panel panels[] = {{.title = "", .x_label = "", .y_label = "", .series = {{"", {}}}, .is_log_x = true},
                          {.title = "", .x_label = "", .y_label = "", .series = {{"", {{0, 0}}}}},
                          {.title = "", .x_label = "", .y_label = "", .series = {}}};
  const auto svg = svg_of("", panels);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgPlot, TextIsEscaped) {
  const auto svg = svg_of("<a & \"b\">", {});
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;"), std::string::npos);
}

TEST(Plots, OfARunShowsBothDistributions) {
  Statistics statistics;
  statistics.ttft_ms = LatencySamples({1, 2, 3, 4});
  statistics.itl_ms = LatencySamples(std::vector<double>(100000, 5.0));
  const auto svg = latency_plot("m", statistics);
  const auto lines = lines_of(svg);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].size(), 4);
  EXPECT_EQ(lines[1].size(), 400);
}

TEST(Plots, OfASweepShowRatesFromLeftToRight) {
  std::vector<std::pair<LoadPlan, Statistics>> runs;
  for (const double rate : {4.0, 1.0, 2.0}) {
    Statistics statistics{.completed = static_cast<std::int64_t>(rate * 10), .duration_s = 10};
    runs.emplace_back(LoadPlan{.request_rate = rate}, statistics);
  }
  const auto lines = lines_of(sweep_plot("m", runs, {.is_set = true}));
  ASSERT_EQ(lines.size(), 6) << "completed and goodput, two quantiles of TTFT and of ITL";
  ASSERT_EQ(lines[0].size(), 3);
  EXPECT_LT(lines[0][0].first, lines[0][1].first);
  EXPECT_LT(lines[0][1].first, lines[0][2].first);
  EXPECT_GT(lines[0][0].second, lines[0][2].second);
}

}  // namespace
}  // namespace pagoda::bench_serve
