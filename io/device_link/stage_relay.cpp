#include "io/device_link/stage_relay.hpp"

#include <utility>

namespace pagoda::device_link {

StageRelay::StageRelay(int num_stages, std::int64_t max_floats)
    : stages_(static_cast<std::size_t>(num_stages), Stage{nullptr, StageRowsChecks(max_floats)}),
      max_floats_(max_floats) {}

void StageRelay::connect(int stage, FrameChannel& channel) {
  const std::lock_guard lock(mutex_);
  stages_.at(static_cast<std::size_t>(stage)) = Stage{&channel, StageRowsChecks(max_floats_)};
}

void StageRelay::disconnect(int stage, const FrameChannel& channel) {
  const std::lock_guard lock(mutex_);
  Stage& its = stages_.at(static_cast<std::size_t>(stage));
  if (its.channel == &channel) its.channel = nullptr;
}

bool StageRelay::pass(int from_stage, StageRows rows) {
  const std::lock_guard lock(mutex_);
  const auto from = static_cast<std::size_t>(from_stage);
  if (from + 1 >= stages_.size() || !stages_[from].checks.take(rows)) return false;
  if (FrameChannel* const next = stages_[from + 1].channel) next->send(ToWorker(std::move(rows)));
  return true;
}

}  // namespace pagoda::device_link
