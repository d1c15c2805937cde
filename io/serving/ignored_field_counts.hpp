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

/// Counts, for each name of an ignored field, the requests that had this field. Logs a name when it first occurs.
/// Thread-safe.
class IgnoredFieldCounts {
 public:
  static constexpr std::size_t kMaxNames = 128;  ///< further names are counted together, under kOther
  /// Label of the further names. A field of a client with this name is counted with them.
  static constexpr std::string_view kOther = "other";

  /// Counts the ignored fields of one request; `request_id` is for the log.
  void add(const std::vector<std::string>& names, std::string_view request_id);
  void write(metrics::PrometheusText& text) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> counts_;  // without kOther
  std::int64_t num_others_ = 0;
  bool is_field_other_logged_ = false;
  bool are_further_names_logged_ = false;
};

}  // namespace pagoda::serving
