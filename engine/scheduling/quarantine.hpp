#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Finds the request that crashes workers, by bisection of the requests that ran when one crashed.
///
/// A request that ran in two crashes is quarantined. Some of the quarantined requests are on trial: first those that
/// had output before, if others had none (most requests that crash workers do so with their prompt), else the first
/// half. They run, beside all requests that are not quarantined, until each is behind the token at which it ran in the
/// last crash. The others wait. A trial without a crash clears the requests on trial, and as many others are on trial
/// next; a crash leaves half of them on trial. A single request on trial runs alone: if a worker crashes then, the
/// request is the culprit. So n requests take about 2 log2(n) trials, and only a request that was alone is ever blamed.
///
/// A crash costs the time of a step and of a restart. After it the suspects rest for twice as long, at most 10 s, while
/// others run. The suspects are the requests without output that ran in the crash or, in a trial, those that are on
/// trial next.
class Quarantine {
 public:
  /// The requests that ran in steps in flight when a worker crashed.
  struct Crash {
    std::set<RequestId> ran = {};
    std::set<RequestId> without_output = {};  ///< those of them that had no output yet
    bool ended_ran = false;                   ///< whether requests that have ended since also ran; then none was alone
    TimeUs began_us = 0;                      ///< when the first of the steps was planned
  };

  /// Call when a worker has crashed. Returns the culprit, if it is known.
  std::optional<RequestId> crashed(const Crash& crash);
  /// Call when a step has ended.
  void step_ended() { step_has_ended_ = true; }
  /// Call before a plan, with the clock of Crash::began_us. Returns whether the suspects have rested long enough; then
  /// they rest no longer. A rest begins with the first step behind the crash.
  bool end_rest_if_over(TimeUs now);
  /// Call when a worker was replaced that has not crashed, or when no other request can run. Returns whether there were
  /// suspects that rested.
  bool end_rest() { return !std::exchange(resting_, {}).empty(); }
  /// Call when all requests on trial have passed: they are cleared, and the next ones are on trial.
  void trial_passed();
  /// Call when the request has ended.
  void forget(RequestId request);

  bool is_empty() const { return quarantined_.empty(); }
  /// Returns whether there are requests that are held back, or on trial.
  bool is_active() const { return !quarantined_.empty() || !resting_.empty(); }
  std::span<const RequestId> quarantined() const { return quarantined_; }
  /// Returns the requests on trial. Empty when no request is quarantined.
  std::span<const RequestId> on_trial() const { return std::span(quarantined_).first(num_on_trial_); }
  /// Returns the request that runs alone, if there is one.
  std::optional<RequestId> solo_request() const;
  /// Returns whether the request must wait for the end of the trial, or rest.
  bool holds_back(RequestId request) const;
  bool is_valid() const {
    return num_on_trial_ <= quarantined_.size() && is_valid_time(crash_began_us_) && is_valid_time(rest_ends_us_);
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.quarantined_, self.num_on_trial_, self.num_crashes_, self.resting_, self.crash_began_us_,
                 self.step_has_ended_, self.rest_ends_us_);
  }

 private:
  /// Number of crashes in which a request must have run to be quarantined. A single crash may have another reason.
  static constexpr std::int32_t kMinCrashes = 2;

  void begin_trial() { num_on_trial_ = (quarantined_.size() + 1) / 2; }
  void quarantine_those_of(const Crash& crash);

  std::vector<RequestId> quarantined_;  ///< requests on trial first
  std::size_t num_on_trial_ = 0;
  std::map<RequestId, std::int32_t> num_crashes_;  ///< number of crashes by request that is not quarantined
  std::set<RequestId> resting_;
  TimeUs crash_began_us_ = 0;    ///< Crash::began_us of the last one
  bool step_has_ended_ = false;  ///< since the last crash
  TimeUs rest_ends_us_ = 0;      ///< 0: no rest has begun since the last crash
};

}  // namespace pagoda::scheduling
