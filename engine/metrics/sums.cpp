#include "engine/metrics/sums.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pagoda::metrics {
namespace {

void add_field(std::int64_t& total, std::int64_t more) {
  total += more;
}
void add_field(double& total, double more) {
  total += more;
}
void add_field(std::vector<std::int64_t>& total, const std::vector<std::int64_t>& more) {
  total.insert(total.end(), more.begin(), more.end());
}
// bool and text fields are not summed: see sum_of.
void add_field(bool&, bool) {}
void add_field(std::string&, const std::string&) {}

template <class Total, class More, std::size_t... kFields>
void add_fields(Total total, More more, std::index_sequence<kFields...>) {
  (add_field(std::get<kFields>(total), std::get<kFields>(more)), ...);
}

void add_all(EngineStats& total, const EngineStats& more) {
  const auto tied = [](auto&... fields) { return std::tie(fields...); };
  const auto to = EngineStats::visit_fields(total, tied);
  add_fields(to, EngineStats::visit_fields(more, tied), std::make_index_sequence<std::tuple_size_v<decltype(to)>>());
}

}  // namespace

EngineStats sum_of(std::span<const EngineStats> all) {
  EngineStats total;
  double uptime_s = 0;
  total.overloaded = !all.empty();
  for (const EngineStats& stats : all) {
    add_all(total, stats);
    uptime_s = std::max(uptime_s, stats.uptime_s);
    total.overloaded = total.overloaded && stats.overloaded;
    if (total.health == "ok") total.health = stats.health;
  }
  total.uptime_s = uptime_s;
  return total;
}

EngineStats counts_of_ended(EngineStats stats) {
  stats.requests_waiting = stats.requests_running = stats.requests_swapped = 0;
  stats.device_blocks_total = stats.device_blocks_free = stats.device_blocks_cached = 0;
  stats.host_blocks_total = stats.host_blocks_free = 0;
  stats.allocated_slots = stats.used_slots = 0;
  stats.swap_bytes_per_s = 0;
  stats.worker_pids.clear();
  stats.overloaded = true;  // all replicas that are left decide
  stats.health = "ok";
  return stats;
}

void add(StepMetrics& total, const StepMetrics& more) {
  total.tokens.add(more.tokens);
  total.plan_seconds.add(more.plan_seconds);
  total.compute_seconds.add(more.compute_seconds);
  total.copy_seconds.add(more.copy_seconds);
  total.worker_pause.add(more.worker_pause);
  total.recomputed_tokens += more.recomputed_tokens;
  total.forced_tokens += more.forced_tokens;
  total.drafts += more.drafts;
  total.draft_tokens += more.draft_tokens;
  total.accepted_draft_tokens += more.accepted_draft_tokens;
  for (std::size_t position = 0; position < kMaxDraftPositions; ++position) {
    total.accepted_at_positions[position] += more.accepted_at_positions[position];
  }
  total.late_masks += more.late_masks;
}

}  // namespace pagoda::metrics
