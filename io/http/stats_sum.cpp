#include "io/http/stats_sum.hpp"

#include <utility>
#include <variant>
#include <vector>

#include "engine/metrics/sums.hpp"

namespace pagoda::http {

EngineStats sum_of(const std::vector<serving::Answer>& answers) {
  std::vector<EngineStats> all;
  for (const auto& answer : answers) all.push_back(std::get<EngineStats>(answer));
  if (all.size() == 1) return std::move(all.front());
  return metrics::sum_of(all);
}

}  // namespace pagoda::http
