#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::execution {

/// Returns the last step that touches any block of the plan's moves; 0 = none.
inline StepId last_touched_step(const CachePlan& plan) {
  StepId last = 0;
  for (const auto* moves : {&plan.swap_out, &plan.swap_in, &plan.copies}) {
    for (const BlockMove& move : *moves) last = std::max(last, move.last_touched_step);
  }
  return last;
}

/// Decides when a cache engine may enqueue the plans that it has received. Plans are enqueued in their order, each
/// after the last step that touches its blocks is enqueued on the compute stream, so that the copy stream can wait for
/// the end of that step. A deterministic state machine; its owner keeps the events and the plans.
class CacheOrder {
 public:
  /// A plan that may be enqueued now.
  struct Ready {
    StepId plan = 0;
    StepId after = 0;  ///< step whose end the copy stream must wait for first, if it has not passed already

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.plan, self.after); }
  };

  /// Call when message 4 has arrived: the plan of `step`, whose moves wait for `last_touched` (see last_touched_step).
  /// Plans arrive in their order.
  void plan_arrived(StepId step, StepId last_touched) { plans_.push_back({step, last_touched}); }

  /// Call when the worker has enqueued the step. Steps are enqueued in their order, so the last step covers the others.
  void step_enqueued(StepId step) { last_enqueued_ = std::max(last_enqueued_, step); }

  /// Call when a worker is about to enqueue its first step: all earlier steps have passed, or never will. Every plan of
  /// an earlier step has arrived by now, and may be enqueued. Take these plans with next(). Then send the worker their
  /// end and last_plan().
  void connect(StepId first_step) {
    step_enqueued(first_step - 1);
    last_plan_ = std::max(last_plan_, first_step - 1);
  }

  /// Returns the last step up to which no plan is left to enqueue. Some of the enqueued plans may have been reported to
  /// a worker that has ended.
  StepId last_plan() const { return last_plan_; }

  /// Takes the next plan that may be enqueued, if there is one.
  std::optional<Ready> next() {
    if (plans_.empty() || plans_.front().after > last_enqueued_) return std::nullopt;
    const Ready ready = plans_.front();
    plans_.pop_front();
    last_plan_ = std::max(last_plan_, ready.plan);
    return ready;
  }

  /// The whole state.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.plans_, self.last_enqueued_, self.last_plan_);
  }

 private:
  std::deque<Ready> plans_;
  StepId last_enqueued_ = 0;
  StepId last_plan_ = 0;
};

}  // namespace pagoda::execution
