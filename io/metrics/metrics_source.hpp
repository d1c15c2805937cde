#pragma once

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::metrics {

/// A part of the server that has metrics of its own. Implementations are thread-safe and do not block.
class MetricsSource {
 public:
  virtual ~MetricsSource() = default;
  virtual void write(PrometheusText& text) const = 0;
};

}  // namespace pagoda::metrics
