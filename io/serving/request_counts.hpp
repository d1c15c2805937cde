#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "io/serving/request_record.hpp"

namespace pagoda::metrics {
class PrometheusText;
}

namespace pagoda::serving {

/// Counts requests that have ended: HTTP requests by method, route and status, JSON-lines requests by code.
/// Thread-safe.
class RequestCounts {
 public:
  void add(const RequestRecord& record);
  void write(metrics::PrometheusText& text) const;

 private:
  using HttpKey = std::tuple<std::string, std::string, unsigned>;  ///< method, route, status

  mutable std::mutex mutex_;
  std::map<HttpKey, std::int64_t> http_;
  std::map<std::string, std::int64_t> json_lines_;  ///< by done, aborted or the code of an error
};

}  // namespace pagoda::serving
