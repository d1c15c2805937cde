#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::execution {

/// The last step that touches any block of the plan's moves; 0 = none.
inline StepId last_touched_step(const CachePlan& plan) {
  StepId last = 0;
  for (const auto* moves : {&plan.swap_out, &plan.swap_in, &plan.copies}) {
    for (const BlockMove& move : *moves) last = std::max(last, move.last_touched_step);
  }
  return last;
}

/// When a cache engine may enqueue the plans it was told: in their order, and each only once the last step that touches
/// its blocks is enqueued on the compute stream, so that the copy stream can wait for its end. A deterministic state
/// machine; events and plans themselves are its owner's.
class CacheOrder {
 public:
  /// A plan that may be enqueued now.
  struct Ready {
    StepId plan = 0;
    StepId after = 0;  ///< first the copy stream must wait for the end of this step, if the end is not behind already

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.plan, self.after); }
  };

  /// Message 4 has come: the plan of `step`, whose moves wait for `last_touched` (last_touched_step). Plans come in
  /// their order.
  void plan_arrived(StepId step, StepId last_touched) { plans_.push_back({step, last_touched}); }

  /// The worker has enqueued the step. Steps are enqueued in their order, so the last one covers the others.
  void step_enqueued(StepId step) { last_enqueued_ = std::max(last_enqueued_, step); }

  /// A worker is about to enqueue its first step: all before it have passed, or never will. Every plan of a step before
  /// it has come by now, and may be enqueued. Take these, then tell the worker where they end, and last_plan().
  void connect(StepId first_step) {
    step_enqueued(first_step - 1);
    last_plan_ = std::max(last_plan_, first_step - 1);
  }

  /// No plan up to here is still to be enqueued. Some that are may have been told to a worker that has ended.
  StepId last_plan() const { return last_plan_; }

  /// Takes the next plan that may be enqueued, if there is one.
  std::optional<Ready> next() {
    if (plans_.empty() || plans_.front().after > last_enqueued_) return std::nullopt;
    const Ready ready = plans_.front();
    plans_.pop_front();
    last_plan_ = std::max(last_plan_, ready.plan);
    return ready;
  }

  /// Its state.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.plans_, self.last_enqueued_, self.last_plan_);
  }

 private:
  std::deque<Ready> plans_;
  StepId last_enqueued_ = 0;
  StepId last_plan_ = 0;
};

}  // namespace pagoda::execution
