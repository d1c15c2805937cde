#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::metrics {
class PrometheusText;
}

namespace pagoda::serving {

/// How many requests had a field that was ignored, by its name. Logs a name when it comes first. Thread-safe.
class IgnoredFieldCounts {
 public:
  static constexpr std::size_t kMaxNames = 128;  ///< further names are counted together, as kOther
  static constexpr std::string_view kOther = "other";

  /// Counts the fields of one request, which is named in the log.
  void add(const std::vector<std::string>& names, std::string_view request_id);
  void write(metrics::PrometheusText& text) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> counts_;
};

}  // namespace pagoda::serving
