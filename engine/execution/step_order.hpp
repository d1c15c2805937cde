#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "engine/types.hpp"

namespace pagoda::execution {

/// When a worker may enqueue the steps it was told: in their order, and each with a cache plan only once that plan is
/// enqueued on the cache engine's stream, so that the compute stream can wait for its end. A step that waits for masks
/// may be enqueued without them but for its sampling, which comes before the next step. A deterministic state machine;
/// events and steps themselves are its owner's.
///
/// A worker may take the place of one that has ended. What that had enqueued has passed, and what it had not never
/// will; but cache plans of such steps may still be to come. So a worker begins with its first step by asking the cache
/// engine to connect (CacheOrder::connect), and enqueues nothing before it has.
class StepOrder {
 public:
  /// What of a step may be enqueued: everything, or what comes before and behind its masks.
  enum class Part : std::uint8_t { all, model, sampling };
  friend constexpr Part last_value(Part) { return Part::sampling; }

  /// A step that may be enqueued now.
  struct Ready {
    StepId step = 0;
    bool waits_for_plan = false;  ///< first the compute stream must wait for the end of the step's cache plan
    Part part = Part::all;

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.step, self.waits_for_plan, self.part);
    }
  };

  /// Message 6 has come. Steps come in their order. True for the first: the cache engine must be asked to connect.
  bool step_arrived(StepId step, bool wait_for_cache, bool wait_for_masks) {
    steps_.push_back({step, wait_for_cache, wait_for_masks ? Part::model : Part::all});
    const bool is_first = !asked_;
    asked_ = true;
    return is_first;
  }

  /// The masks of a step that has arrived and waits for them have come.
  void masks_arrived(StepId step) { masks_.insert(step); }

  /// Message 7 has come: the step's cache plan is enqueued.
  void plan_enqueued(StepId step) { plans_.insert(step); }

  /// The cache engine has connected: the compute stream waits already for all its plans up to `last_plan`.
  void connected(StepId last_plan) {
    is_connected_ = true;
    plans_passed_to_ = last_plan;
    plans_.erase(plans_.begin(), plans_.upper_bound(last_plan));
  }

  /// Takes the next step, or part of one, that may be enqueued, if there is one.
  std::optional<Ready> next() {
    if (!is_connected_ || steps_.empty()) return std::nullopt;
    Ready ready = steps_.front();
    if (ready.part == Part::sampling) {
      if (masks_.erase(ready.step) == 0) return std::nullopt;
      steps_.pop_front();
      return ready;
    }
    ready.waits_for_plan &= ready.step > plans_passed_to_;
    if (ready.waits_for_plan && plans_.erase(ready.step) == 0) return std::nullopt;
    if (ready.part == Part::model && masks_.erase(ready.step) > 0) ready.part = Part::all;
    if (ready.part == Part::model) {
      steps_.front() = {ready.step, false, Part::sampling};
    } else {
      steps_.pop_front();
    }
    return ready;
  }

  /// Its state.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.steps_, self.plans_, self.masks_, self.asked_, self.is_connected_, self.plans_passed_to_);
  }

 private:
  std::deque<Ready> steps_;  ///< the first may have its sampling left
  std::set<StepId> plans_;   ///< enqueued, of steps that are not
  std::set<StepId> masks_;   ///< of steps whose sampling is not enqueued
  bool asked_ = false;
  bool is_connected_ = false;
  StepId plans_passed_to_ = 0;
};

}  // namespace pagoda::execution
