#include "io/serving/ignored_field_counts.hpp"

#include <spdlog/spdlog.h>

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {

void IgnoredFieldCounts::add(const std::vector<std::string>& names, std::string_view request_id) {
  if (names.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& name : names) {
    if (const auto known = counts_.find(name); known != counts_.end()) {
      ++known->second;
    } else if (counts_.size() < kMaxNames) {
      counts_.emplace(name, 1);
      spdlog::warn("request {}: the field {} is ignored (logged once per name)", request_id, name);
    } else if (counts_[std::string(kOther)]++ == 0) {
      spdlog::warn("request {}: the field {} is ignored; further names are not logged", request_id, name);
    }
  }
}

void IgnoredFieldCounts::write(metrics::PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.counter("pagoda:ignored_fields_total",
               "Number of HTTP requests with an ignored field, by its name (other: names beyond the first 128).");
  for (const auto& [name, count] : counts_) text.sample(count, metrics::labels({{"field", name}}));
}

}  // namespace pagoda::serving
