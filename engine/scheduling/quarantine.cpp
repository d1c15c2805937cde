#include "engine/scheduling/quarantine.hpp"

#include <algorithm>

namespace pagoda::scheduling {

std::optional<RequestId> Quarantine::crashed(const Crash& crash) {
  const auto has_run = [&](RequestId request) { return crash.ran.contains(request); };
  if (crash.ran.empty() && !crash.ended_ran) return std::nullopt;  // for example a worker that crashed while it loaded
  resting_.clear();
  step_has_ended_ = false;
  rest_ends_us_ = 0;
  crash_began_us_ = crash.began_us;
  const auto solo = solo_request();
  if (solo && !crash.ended_ran && crash.ran.size() == 1 && has_run(*solo)) {
    forget(*solo);
    return solo;
  }
  const bool in_trial = std::ranges::any_of(on_trial(), has_run);
  if (in_trial) num_on_trial_ = (num_on_trial_ + 1) / 2;
  quarantine_those_of(crash);
  if (in_trial) {
    resting_.insert(on_trial().begin(), on_trial().end());
  } else if (crash.without_output.size() < crash.ran.size()) {
    resting_ = crash.without_output;
  }
  return std::nullopt;
}

void Quarantine::quarantine_those_of(const Crash& crash) {
  std::vector<RequestId> without_output;
  for (const RequestId request : crash.ran) {
    const bool is_quarantined = std::ranges::find(quarantined_, request) != quarantined_.end();
    if (is_quarantined || ++num_crashes_[request] < kMinCrashes) continue;
    num_crashes_.erase(request);
    (crash.without_output.contains(request) ? without_output : quarantined_).push_back(request);
  }
  const std::size_t num_with_output = quarantined_.size();
  quarantined_.insert(quarantined_.end(), without_output.begin(), without_output.end());
  if (num_on_trial_ > 0) return;
  begin_trial();
  if (num_with_output > 0 && !without_output.empty()) num_on_trial_ = num_with_output;
}

bool Quarantine::end_rest_if_over(TimeUs now) {
  constexpr TimeUs kRestPerCrash = 2;
  constexpr TimeUs kMaxRestUs = 10'000'000;
  if (resting_.empty() || !step_has_ended_) return false;
  if (rest_ends_us_ == 0) {
    rest_ends_us_ = now + std::clamp<TimeUs>(kRestPerCrash * (now - crash_began_us_), 0, kMaxRestUs);
  }
  return now >= rest_ends_us_ && end_rest();
}

void Quarantine::trial_passed() {
  // If half of the quarantined requests have passed, the culprit is among the next as many, if there is only one.
  const std::size_t num_next = std::max<std::size_t>(num_on_trial_, 2);
  quarantined_.erase(quarantined_.begin(), quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_));
  num_on_trial_ = std::min(num_next, quarantined_.size());
}

void Quarantine::forget(RequestId request) {
  num_crashes_.erase(request);
  resting_.erase(request);
  const auto found = std::ranges::find(quarantined_, request);
  if (found == quarantined_.end()) return;
  const bool was_on_trial = found < quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_);
  quarantined_.erase(found);
  if (was_on_trial && --num_on_trial_ == 0) begin_trial();
}

std::optional<RequestId> Quarantine::solo_request() const {
  if (num_on_trial_ != 1 || resting_.contains(quarantined_.front())) return std::nullopt;
  return quarantined_.front();
}

bool Quarantine::holds_back(RequestId request) const {
  if (resting_.contains(request)) return true;
  if (const auto solo = solo_request()) return request != *solo;
  return std::find(quarantined_.begin() + static_cast<std::ptrdiff_t>(num_on_trial_), quarantined_.end(), request) !=
         quarantined_.end();
}

}  // namespace pagoda::scheduling
