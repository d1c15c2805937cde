#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "engine/scheduling/draft_outcomes.hpp"
#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/step_builder.hpp"
#include "engine/scheduling/step_time_curve.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Decides which drafts run in the next step: those that raise the number of tokens that the step keeps, divided by its
/// time, by the measured times of earlier steps. Proposers find drafts, or leave them to the draft model, and tell
/// their chances.
class DraftPlanner {
 public:
  /// `step_times`: durations of steps, without the runs of the draft model.
  DraftPlanner(const SchedulerConfig& config, GroupTable& table, const StepTimeCurve& step_times)
      : config_(config), table_(table), step_times_(step_times) {}
  DraftPlanner(const DraftPlanner&) = delete;
  DraftPlanner& operator=(const DraftPlanner&) = delete;

  /// The next step without drafts.
  struct Step {
    std::int32_t num_tokens = 0;
    std::int32_t max_drafts = 0;  ///< maximum number of drafts of all sequences together
    std::function<bool(const SequenceGroup&)> may_run;
  };
  /// Sets the drafts of all running sequences, and how many tokens of each the draft model reads.
  void plan(const Step& step);

  /// Records that the runs of the draft model in a step took `duration_us`.
  void runs_measured(const InFlightStep& step, TimeUs duration_us);
  /// Records that the first `num_right` of `num_drafts` drafts of the draft model were right. `sequence` is null if it
  /// has ended.
  void made_drafts_verified(Sequence* sequence, std::int32_t num_drafts, std::int32_t num_right);

  /// The state between two plans.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.run_times_, self.read_times_, self.outcomes_, self.num_plans_without_run_);
  }
  /// Returns whether a state that was read from bytes is possible.
  bool is_valid() const { return outcomes_.is_valid() && num_plans_without_run_ >= 0; }

 private:
  /// The number of tokens in a step, the number of them that probably count (all but wrong drafts), and the durations
  /// of the step and of the draft model's runs before it.
  struct Gain {
    std::int32_t num_tokens = 0;
    double num_kept = 0;
    double us = 0;
    double us_of_runs = 0;

    double us_of_token() const { return (us + us_of_runs) / num_kept; }
    /// Returns whether it keeps `factor` times as many tokens for its time as the other, or more. A step that may take
    /// any time (StepTimeCurve) never does.
    bool pays_more_than(const Gain& other, double factor = 1) const {
      return us < std::numeric_limits<double>::infinity() &&
             num_kept * (other.us + other.us_of_runs) >= factor * other.num_kept * (us + us_of_runs);
    }
  };
  /// A sequence whose drafts the draft model may make.
  struct Drafter {
    const SequenceGroup* group = nullptr;
    Sequence* sequence = nullptr;
    double chance = 0;            ///< of each draft, if those before it are right
    std::int32_t max_drafts = 0;  ///< maximum number of drafts
    std::int32_t num_unread = 0;  ///< number of tokens that the draft model must read before the first draft
    double chance_of_last = 1;    ///< that all drafts up to the last run are right
    std::int32_t num_drafts = 0;  ///< number of drafts that it gets
  };

  template <class Visit>
  void visit_drafting(const Visit& visit) const;
  double expected_us(std::int32_t num_tokens);
  std::int32_t add_drafts_that_pay(Gain& step);
  void add_drafter(const SequenceGroup& group, Sequence& sequence);
  void use_draft_model(const Gain& without, Gain& step, std::int32_t room);
  void add_runs_that_pay(Gain& step, std::span<Drafter> drafters, std::int32_t room);
  std::int32_t add_run(Gain& step, std::span<Drafter> drafters, std::int32_t run, std::int32_t room);
  void let_read(std::span<const Drafter> behind, double saved_us, std::int32_t left);
  bool should_read(const Drafter& drafter, double saved_us) const;
  std::int32_t max_inputs(double us_of_step) const;

  const SchedulerConfig& config_;
  GroupTable& table_;
  const StepTimeCurve& step_times_;
  StepTimeCurve run_times_;   ///< durations of runs of the draft model, by the number of their tokens
  StepTimeCurve read_times_;  ///< durations of reading tokens of sequences that are far behind
  DraftOutcomes outcomes_;    ///< of made drafts of all sequences together
  std::int32_t num_plans_without_run_ = 0;

  // State of the current plan:
  std::vector<double> chances_;      ///< see Proposer::propose; of the current sequence
  std::vector<double> expected_us_;  ///< durations of steps, by the number of tokens above those without drafts
  std::int32_t fewest_ = 0;          ///< number of tokens without drafts
  std::vector<Drafter> drafters_;    ///< those with the best chance first
};

}  // namespace pagoda::scheduling
