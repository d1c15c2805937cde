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
  /// Call when a worker has crashed. `ran`: the requests that ran in steps in flight. `ended_ran`: whether requests
  /// that have ended since also ran; then no request was alone. Returns the culprit, if it is known.
  std::optional<RequestId> crashed(const std::set<RequestId>& ran, bool ended_ran = false);
  /// Call when all requests on trial have passed: they are cleared, and the next ones are on trial.
  void trial_passed();
  /// Call when the request has ended.
  void forget(RequestId request);

  bool is_empty() const { return quarantined_.empty(); }
  std::span<const RequestId> quarantined() const { return quarantined_; }
  /// Returns the requests on trial. Empty when no request is quarantined.
  std::span<const RequestId> on_trial() const { return std::span(quarantined_).first(num_on_trial_); }
  /// Returns the request that runs alone, if there is one.
  std::optional<RequestId> solo_request() const;
  /// Returns whether the request must wait for the end of the trial.
  bool holds_back(RequestId request) const;
  bool is_valid() const { return num_on_trial_ <= quarantined_.size(); }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.quarantined_, self.num_on_trial_, self.num_crashes_);
  }

 private:
  /// Number of crashes in which a request must have run to be quarantined. A single crash may have another reason.
  static constexpr std::int32_t kMinCrashes = 2;

  void begin_trial() { num_on_trial_ = (quarantined_.size() + 1) / 2; }

  std::vector<RequestId> quarantined_;  ///< requests on trial first
  std::size_t num_on_trial_ = 0;
  std::map<RequestId, std::int32_t> num_crashes_;  ///< number of crashes by request that is not quarantined
};

}  // namespace pagoda::scheduling
