// The router's reports: counters, metrics, and lists of requests.

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {

EngineStats RouterCore::with_own(EngineStats stats, TimeUs now) const {
  if (failure_) stats = EngineStats{.health = failure_->message};
  stats.uptime_s = static_cast<double>(now - started_us_) / 1e6;
  if (failure_) return stats;
  stats.requests_aborted_total += aborted_outside_;
  stats.requests_failed_total += failed_with_replicas_;
  stats.requests_waiting +=
      std::ranges::count_if(live_, [](const auto& entry) { return entry.second.outside != nullptr; });
  stats.overloaded = is_full();
  return stats;
}

metrics::EngineMetrics RouterCore::metrics_with_own(metrics::EngineMetrics metrics, TimeUs now) const {
  metrics.stats = with_own(std::move(metrics.stats), now);
  metrics.requests.endings[static_cast<std::size_t>(metrics::RequestEnding::abort)] +=
      static_cast<std::uint64_t>(aborted_outside_);
  metrics.grammars.waiting =
      std::ranges::count_if(live_, [](const auto& entry) { return entry.second.grammar_job.has_value(); });
  return metrics;
}

std::vector<LiveRequest> RouterCore::live_requests(const std::vector<GroupProgress>& progress, TimeUs now) const {
  std::vector<LiveRequest> all;
  auto next = progress.begin();
  for (const auto& [id, request] : live_) {
    LiveRequest& live =
        all.emplace_back(LiveRequest{.id = id,
                                     .request_id = request.request_id,
                                     .user = request.user,
                                     .adapter = request.outside ? request.outside->adapter : request.adapter.name,
                                     .state = RequestState::preparing,
                                     .prompt_tokens = request.num_prompt_tokens,
                                     .generated_tokens = 0,
                                     .age_s = static_cast<double>(now - request.arrival.at_us) / 1e6});
    if (!request.outside) live.state = RequestState::waiting;
    if (placement_.is_placed(id)) live.replica = placement_.replica_of(id);
    next = std::find_if(next, progress.end(), [id = id](const GroupProgress& group) { return group.id >= id; });
    if (next == progress.end() || next->id != id) continue;
    live.state = next->state;
    live.generated_tokens = next->generated_tokens;
  }
  return all;
}

std::vector<view::LiveRequest> RouterCore::waiting_for_grammar() const {
  std::vector<view::LiveRequest> all;
  for (const auto& [id, request] : live_) {
    if (!request.grammar_job) continue;
    if (all.size() == view::kMaxRequests) break;
    all.push_back({.id = id,
                   .state = view::RequestState::waiting_for_grammar,
                   .num_sequences = static_cast<std::int32_t>(request.outside->sampling.num_sequences()),
                   .prompt_tokens = request.num_prompt_tokens,
                   .max_tokens = request.outside->sampling.max_tokens,
                   .priority = request.outside->priority,
                   .adapter = request.outside->adapter,
                   .arrival_us = request.arrival.at_us});
  }
  return all;
}

}  // namespace pagoda::routing
