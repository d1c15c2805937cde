#include "io/serving/ignored_field_counts.hpp"

#include <utility>

#include <spdlog/spdlog.h>

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {
namespace {

void log_name(std::string_view request_id, std::string_view name) {
  spdlog::warn("request {}: the field {} is ignored (logged once per name)", request_id, name);
}

}  // namespace

void IgnoredFieldCounts::add(const std::vector<std::string>& names, std::string_view request_id) {
  if (names.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& name : names) {
    if (const auto known = counts_.find(name); known != counts_.end()) {
      ++known->second;
    } else if (name != kOther && counts_.size() < kMaxNames) {
      counts_.emplace(name, 1);
      log_name(request_id, name);
    } else {
      ++num_others_;
      if (name == kOther) {
        if (!std::exchange(is_field_other_logged_, true)) log_name(request_id, name);
      } else if (!std::exchange(are_further_names_logged_, true)) {
        spdlog::warn("request {}: the field {} is ignored; further names are not logged", request_id, name);
      }
    }
  }
}

void IgnoredFieldCounts::write(metrics::PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.counter("pagoda:ignored_fields_total",
               "HTTP requests with a field that was ignored, by its name (other: names beyond the first 128, and a "
               "field named other).");
  for (const auto& [name, count] : counts_) text.sample(count, metrics::labels({{"field", name}}));
  if (num_others_ > 0) text.sample(num_others_, metrics::labels({{"field", kOther}}));
}

}  // namespace pagoda::serving
