#include "engine/scheduling/queue_view.hpp"

#include <algorithm>
#include <span>

namespace pagoda::scheduling {
namespace {

using view::RequestState;

std::span<SequenceGroup* const> first_of(const std::vector<SequenceGroup*>& groups) {
  return std::span(groups).first(std::min(groups.size(), view::kMaxRequests));
}

view::LiveRequest seen(const SequenceGroup& group, RequestState state) {
  view::LiveRequest request;
  request.id = group.entry.id;
  request.state = state;
  request.num_sequences = group.num_unfinished();
  const std::int64_t num_virtual = group.spec->num_virtual_tokens();
  request.prompt_tokens = group.prompt_len() - num_virtual;
  request.max_tokens = group.spec->sampling.max_tokens;
  request.priority = group.entry.priority;
  request.adapter = group.spec->adapter.name;
  request.arrival_us = group.entry.arrival_us;
  request.first_scheduled_us = group.first_scheduled_us;
  for (const Sequence& sequence : group.sequences) {
    if (sequence.state == SequenceState::finished) continue;
    request.computed_tokens =
        std::max<std::int64_t>(request.computed_tokens, sequence.num_computed_tokens - num_virtual);
    request.generated_tokens += std::ssize(sequence.output);
  }
  return request;
}

}  // namespace

std::vector<view::LiveRequest> list_requests(const GroupTable& table) {
  std::vector<view::LiveRequest> requests;
  // A request with a running sequence counts as running.
  for (const SequenceGroup* group : first_of(table.running)) requests.push_back(seen(*group, RequestState::running));
  for (const SequenceGroup* group : first_of(table.swapped)) {
    if (!group->in_running) requests.push_back(seen(*group, RequestState::swapped));
  }
  std::size_t num_waiting = 0;
  table.waiting->visit_in_order([&](RequestId id) {
    const SequenceGroup* group = table.find(id);
    if (group != nullptr && !group->in_running && !group->in_swapped) {
      requests.push_back(seen(*group, RequestState::waiting));
    }
    return ++num_waiting < view::kMaxRequests;
  });
  return requests;
}

}  // namespace pagoda::scheduling
