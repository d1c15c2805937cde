#include "io/metrics/prometheus_text.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace pagoda::metrics {
namespace {

TEST(PrometheusText, writes_families_and_their_samples) {
  std::string out;
  PrometheusText text(out);
  text.counter("a_total", "How \\ many\nthere were.");
  text.sample(std::int64_t{1} << 53);
  text.gauge("b", "Now.");
  text.sample(0.1, labels({{"x", "1"}}));
  text.sample(-3, labels({{"x", "2"}, {"y", ""}}));
  EXPECT_EQ(out,
            "# HELP a_total How \\\\ many\\nthere were.\n# TYPE a_total counter\na_total 9007199254740992\n"
            "# HELP b Now.\n# TYPE b gauge\nb{x=\"1\"} 0.1\nb{x=\"2\",y=\"\"} -3\n");
}

TEST(PrometheusText, escapes_what_labels_hold) {
  EXPECT_EQ(labels({{"a", "\"\\\n\t\xC3\xA4"}, {"b", "c"}}), "a=\"\\\"\\\\\\n\t\xC3\xA4\",b=\"c\"");
  EXPECT_EQ(labels({}), "");
}

TEST(PrometheusText, writes_numbers_that_are_none) {
  std::string out;
  PrometheusText text(out);
  text.gauge("a", "b");
  out.clear();
  for (const double value : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                             std::nan(""), 1e300, 5e-324}) {
    text.sample(value);
  }
  EXPECT_EQ(out, "a +Inf\na -Inf\na NaN\na 1e+300\na 5e-324\n");
}

TEST(PrometheusText, adds_buckets_up) {
  static constexpr std::array kBounds{0.5, 1.0, 1000.0};
  Histogram histogram(kBounds);
  for (const double value : {0.25, 0.75, 1.0, 2000.0}) histogram.observe(value);
  std::string out;
  PrometheusText text(out);
  text.histogram("t", "Times.");
  out.clear();
  text.sample(histogram, "a=\"b\"");
  EXPECT_EQ(out,
            "t_bucket{a=\"b\",le=\"0.5\"} 1\nt_bucket{a=\"b\",le=\"1\"} 3\nt_bucket{a=\"b\",le=\"1000\"} 3\n"
            "t_bucket{a=\"b\",le=\"+Inf\"} 4\nt_sum{a=\"b\"} 2002\nt_count{a=\"b\"} 4\n");
  out.clear();
  text.sample(histogram, {}, 999);
  EXPECT_EQ(out, "t_bucket{le=\"0.5\"} 1\nt_bucket{le=\"1\"} 3\nt_bucket{le=\"+Inf\"} 4\nt_sum 2002\nt_count 4\n");
}

}  // namespace
}  // namespace pagoda::metrics
