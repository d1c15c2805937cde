#include "io/http/stats_sum.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

namespace pagoda::http {
namespace {

void add(std::int64_t& total, std::int64_t more) {
  total += more;
}
void add(double& total, double more) {
  total += more;
}
void add(std::vector<std::int64_t>& total, const std::vector<std::int64_t>& more) {
  total.insert(total.end(), more.begin(), more.end());
}
// bool and text fields are not summed: see sum_of.
void add(bool&, bool) {}
void add(std::string&, const std::string&) {}

template <class Total, class More, std::size_t... kFields>
void add_fields(Total total, More more, std::index_sequence<kFields...>) {
  (add(std::get<kFields>(total), std::get<kFields>(more)), ...);
}

void add_all(EngineStats& total, const EngineStats& more) {
  const auto tied = [](auto&... fields) { return std::tie(fields...); };
  const auto to = EngineStats::visit_fields(total, tied);
  add_fields(to, EngineStats::visit_fields(more, tied), std::make_index_sequence<std::tuple_size_v<decltype(to)>>());
}

}  // namespace

EngineStats sum_of(const std::vector<serving::Answer>& answers) {
  EngineStats total;
  double uptime_s = 0;
  total.overloaded = !answers.empty();
  for (const auto& answer : answers) {
    const auto& stats = std::get<EngineStats>(answer);
    add_all(total, stats);
    uptime_s = std::max(uptime_s, stats.uptime_s);
    total.overloaded = total.overloaded && stats.overloaded;
    if (total.health == "ok") total.health = stats.health;
  }
  total.uptime_s = uptime_s;
  return total;
}

}  // namespace pagoda::http
