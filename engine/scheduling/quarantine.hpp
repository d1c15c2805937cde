#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Finds the request that crashes workers, by bisection of the requests that ran when one crashed.
///
/// A request that ran in two crashes is quarantined. The first half of the quarantined requests is on trial: they run,
/// beside all requests that are not quarantined, until each is behind the token at which it ran in the last crash. The
/// others wait. A trial without a crash clears the requests on trial, and as many others are on trial next; a crash
/// leaves half of them on trial. A single request on trial runs alone: if a worker crashes then, the request is the
/// culprit. So n requests take about 2 log2(n) trials, and only a request that was alone is ever blamed.
class Quarantine {
 public:
  /// A worker crashed while these requests ran in steps in flight, and, if `ended_ran`, requests that have ended since:
  /// then no request was alone. Returns the culprit, when it is known.
  std::optional<RequestId> crashed(const std::set<RequestId>& ran, bool ended_ran = false);
  /// All requests on trial have passed: they are cleared, and the next ones are on trial.
  void trial_passed();
  /// The request has ended.
  void forget(RequestId request);

  bool is_empty() const { return quarantined_.empty(); }
  std::span<const RequestId> quarantined() const { return quarantined_; }
  /// Returns the requests on trial. Empty when no request is quarantined.
  std::span<const RequestId> on_trial() const { return std::span(quarantined_).first(num_on_trial_); }
  /// Returns the request that runs alone, if there is one.
  std::optional<RequestId> runs_alone() const;
  /// Whether the request must wait for the end of the trial.
  bool holds_back(RequestId request) const;
  bool is_sound() const { return num_on_trial_ <= quarantined_.size(); }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.quarantined_, self.num_on_trial_, self.num_crashes_);
  }

 private:
  /// Crashes in which a request must have run to be quarantined: one alone may have had another reason.
  static constexpr std::int32_t kMinCrashes = 2;

  void begin_trial() { num_on_trial_ = (quarantined_.size() + 1) / 2; }

  std::vector<RequestId> quarantined_;  ///< those on trial first
  std::size_t num_on_trial_ = 0;
  std::map<RequestId, std::int32_t> num_crashes_;  ///< of requests that are not quarantined and have run in one
};

}  // namespace pagoda::scheduling
