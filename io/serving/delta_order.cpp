#include "io/serving/delta_order.hpp"

#include <algorithm>
#include <utility>

#include "engine/request/sampling_params.hpp"

namespace pagoda::serving {

DeltaOrder::DeltaOrder(std::int64_t num_sequences)
    : lanes_(static_cast<std::size_t>(std::clamp<std::int64_t>(num_sequences, 1, SamplingLimits{}.max_sequences))) {}

void DeltaOrder::add(SequenceDelta delta, std::vector<SequenceDelta>& delivered) {
  const auto index = static_cast<std::size_t>(delta.index);
  if (delta.index < 0 || index >= lanes_.size()) return;
  lanes_[index].ended |= delta.ended;
  lanes_[index].held.push_back(std::move(delta));
  release_due(delivered);
}

void DeltaOrder::finish(std::vector<SequenceDelta>& delivered) {
  for (Lane& lane : lanes_) lane.ended = true;
  release_due(delivered);
}

void DeltaOrder::release_due(std::vector<SequenceDelta>& delivered) {
  // Stops after a whole round in which every sequence had ended.
  for (std::size_t num_ended = 0; num_ended < lanes_.size(); next_ = (next_ + 1) % lanes_.size()) {
    Lane& lane = lanes_[next_];
    if (!lane.held.empty()) {
      delivered.push_back(std::move(lane.held.front()));
      lane.held.pop_front();
      num_ended = 0;
    } else if (lane.ended) {
      ++num_ended;
    } else {
      return;
    }
  }
}

}  // namespace pagoda::serving
