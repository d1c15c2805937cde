#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "engine/types.hpp"

namespace pagoda::execution {

/// Decides when a worker may enqueue the steps that it has received. Steps are enqueued in their order. A step with a
/// cache plan is enqueued only after that plan is enqueued on the cache engine's stream, so that the compute stream can
/// wait for the plan's end. A step that waits for masks may be enqueued without them, except for its sampling, which
/// comes before the next step. A deterministic state machine; its owner keeps the events and the steps.
///
/// A worker may replace one that has ended. The steps that the old worker had enqueued have passed, and its other steps
/// never will; but cache plans of these steps may still arrive. So at its first step a worker asks the cache engine to
/// connect (CacheOrder::connect), and enqueues nothing before the cache engine has connected.
class StepOrder {
 public:
  /// The part of a step that may be enqueued: everything, or only the part before or behind its masks.
  enum class Part : std::uint8_t { all, model, sampling };
  friend constexpr Part last_value(Part) { return Part::sampling; }

  /// A step that may be enqueued now.
  struct Ready {
    StepId step = 0;
    bool waits_for_plan = false;  ///< whether the compute stream must first wait for the end of the step's cache plan
    Part part = Part::all;

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.step, self.waits_for_plan, self.part);
    }
  };

  /// Call when message 6 has arrived. Steps arrive in their order. Returns true for the first step: then the cache
  /// engine must be asked to connect.
  bool step_arrived(StepId step, bool wait_for_cache, bool wait_for_masks) {
    steps_.push_back({step, wait_for_cache, wait_for_masks ? Part::model : Part::all});
    const bool is_first = !asked_;
    asked_ = true;
    return is_first;
  }

  /// Call when the masks of a step have arrived, after the step itself. The step must wait for masks.
  void masks_arrived(StepId step) { masks_.insert(step); }

  /// Call when message 7 has arrived: the step's cache plan is enqueued.
  void plan_enqueued(StepId step) { plans_.insert(step); }

  /// Call when the cache engine has connected: the compute stream already waits for all its plans up to `last_plan`.
  void connected(StepId last_plan) {
    is_connected_ = true;
    plans_passed_to_ = last_plan;
    plans_.erase(plans_.begin(), plans_.upper_bound(last_plan));
  }

  /// Takes the next step, or the part of it, that may be enqueued, if there is one.
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

  /// The whole state.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.steps_, self.plans_, self.masks_, self.asked_, self.is_connected_, self.plans_passed_to_);
  }

 private:
  std::deque<Ready> steps_;  ///< of the first step, only the sampling may be left
  std::set<StepId> plans_;   ///< enqueued plans of steps that are not enqueued
  std::set<StepId> masks_;   ///< arrived masks of steps whose sampling is not enqueued
  bool asked_ = false;
  bool is_connected_ = false;
  StepId plans_passed_to_ = 0;
};

}  // namespace pagoda::execution
