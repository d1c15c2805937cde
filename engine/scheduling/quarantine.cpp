#include "engine/scheduling/quarantine.hpp"

#include <algorithm>

namespace pagoda::scheduling {

std::optional<RequestId> Quarantine::crashed(const std::set<RequestId>& ran, bool ended_ran) {
  const auto has_run = [&](RequestId request) { return ran.contains(request); };
  const auto solo = solo_request();
  if (solo && !ended_ran && ran.size() == 1 && has_run(*solo)) {
    forget(*solo);
    return solo;
  }
  if (std::ranges::any_of(on_trial(), has_run)) num_on_trial_ = (num_on_trial_ + 1) / 2;
  for (const RequestId request : ran) {
    const bool is_quarantined = std::ranges::find(quarantined_, request) != quarantined_.end();
    if (is_quarantined || ++num_crashes_[request] < kMinCrashes) continue;
    num_crashes_.erase(request);
    quarantined_.push_back(request);
  }
  if (num_on_trial_ == 0) begin_trial();
  return std::nullopt;
}

void Quarantine::trial_passed() {
  // If half of the quarantined requests have passed, the culprit is among the next as many, if there is only one.
  const std::size_t num_next = std::max<std::size_t>(num_on_trial_, 2);
  quarantined_.erase(quarantined_.begin(), quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_));
  num_on_trial_ = std::min(num_next, quarantined_.size());
}

void Quarantine::forget(RequestId request) {
  num_crashes_.erase(request);
  const auto found = std::ranges::find(quarantined_, request);
  if (found == quarantined_.end()) return;
  const bool was_on_trial = found < quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_);
  quarantined_.erase(found);
  if (was_on_trial && --num_on_trial_ == 0) begin_trial();
}

std::optional<RequestId> Quarantine::solo_request() const {
  if (num_on_trial_ != 1) return std::nullopt;
  return quarantined_.front();
}

bool Quarantine::holds_back(RequestId request) const {
  if (num_on_trial_ == 1) return request != quarantined_.front();
  return std::find(quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_), quarantined_.end(), request) !=
         quarantined_.end();
}

}  // namespace pagoda::scheduling
