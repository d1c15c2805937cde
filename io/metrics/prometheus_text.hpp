#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/metrics/histogram.hpp"

namespace pagoda::metrics {

/// Content-Type of the text that PrometheusText writes.
inline constexpr std::string_view kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";

/// Returns labels as text: `a="1",b="2"`. Names must need no escaping; values may be any text.
std::string labels(std::initializer_list<std::pair<std::string_view, std::string_view>> pairs);

/// Appends metrics in Prometheus' text format 0.0.4. Begin each family once, and write all its samples after that.
class PrometheusText {
 public:
  explicit PrometheusText(std::string& out) : out_(out) {}

  void counter(std::string_view name, std::string_view help) { family(name, "counter", help); }
  void gauge(std::string_view name, std::string_view help) { family(name, "gauge", help); }
  void histogram(std::string_view name, std::string_view help) { family(name, "histogram", help); }

  /// Writes a sample of the family that was begun last. `labels`: a result of labels().
  template <class T>
  requires std::is_arithmetic_v<T>
  void sample(T value, std::string_view labels = {}) {
    begin_sample({}, labels);
    if constexpr (std::is_integral_v<T>) {
      end_sample(static_cast<std::int64_t>(value));
    } else {
      end_sample(static_cast<double>(value));
    }
  }
  /// Writes a histogram. No observation may be above `largest_value`; buckets above it are left out.
  void sample(const Histogram& histogram, std::string_view labels = {},
              double largest_value = std::numeric_limits<double>::infinity());

  /// Appends complete lines that another writer made.
  void add_lines(std::string_view lines) { out_ += lines; }

 private:
  void family(std::string_view name, std::string_view type, std::string_view help);
  void begin_sample(std::string_view suffix, std::string_view labels, std::string_view le = {});
  void end_sample(std::int64_t value);
  void end_sample(double value);

  std::string& out_;
  std::string name_;
};

}  // namespace pagoda::metrics
