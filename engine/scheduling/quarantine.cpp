#include "engine/scheduling/quarantine.hpp"

#include <algorithm>

namespace pagoda::scheduling {

std::optional<RequestId> Quarantine::crashed(const std::set<RequestId>& ran) {
  const auto has_run = [&](RequestId request) { return ran.contains(request); };
  if (const auto alone = runs_alone(); alone && ran.size() == 1 && has_run(*alone)) {
    forget(*alone);
    begin_trial();
    return alone;
  }
  if (std::ranges::any_of(on_trial(), has_run)) {
    // Requests that wait were not running. Those that ran beside the trial are not suspected as long as the trial is.
    std::erase_if(quarantined_, [&](RequestId request) { return !has_run(request); });
  } else {
    for (const RequestId request : ran) {
      if (++num_crashes_[request] < kMinCrashes) continue;
      num_crashes_.erase(request);
      quarantined_.push_back(request);
    }
  }
  begin_trial();
  return std::nullopt;
}

void Quarantine::trial_passed() {
  quarantined_.erase(quarantined_.begin(), quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_));
  begin_trial();
}

void Quarantine::forget(RequestId request) {
  num_crashes_.erase(request);
  const auto found = std::ranges::find(quarantined_, request);
  if (found == quarantined_.end()) return;
  const bool was_on_trial = found < quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_);
  quarantined_.erase(found);
  if (was_on_trial && --num_on_trial_ == 0) begin_trial();
}

std::optional<RequestId> Quarantine::runs_alone() const {
  if (quarantined_.size() != 1) return std::nullopt;
  return quarantined_.front();
}

bool Quarantine::holds_back(RequestId request) const {
  if (quarantined_.size() == 1) return request != quarantined_.front();
  return std::find(quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_), quarantined_.end(), request) !=
         quarantined_.end();
}

}  // namespace pagoda::scheduling
