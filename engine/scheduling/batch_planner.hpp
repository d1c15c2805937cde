#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduling/draft_planner.hpp"
#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/preemption_cost.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/step_adapters.hpp"
#include "engine/scheduling/step_builder.hpp"
#include "engine/scheduling/step_time_curve.hpp"
#include "engine/scheduling/step_times.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// A sequence that was offered for admission.
struct WaitingRef {
  RequestId group = 0;
  SequenceId sequence = 0;
  std::int32_t num_rows = 0;  ///< number of batch rows that are reserved when it is admitted

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.num_rows);
  }
};

/// The content of a MemoryRequest, kept until its answer is applied.
struct PendingGrant {
  StepId step = 0;
  std::int32_t token_budget = 0;
  std::vector<RunningCandidate> running;
  std::vector<SwapInCandidate> swapped;
  std::vector<WaitingRef> waiting;
  std::vector<SequenceNeed> needs;
  std::vector<bool> shares;   ///< by need: whether other sequences may share the blocks that it computes
  bool prompts_only = false;  ///< whether the request contained no running sequences
  bool discarded = false;     ///< whether the workers were replaced meanwhile
  /// Whether the KV memory was replaced too: no move of its CachePlan will happen, and nothing waits for its step.
  bool memory_lost = false;

  /// Returns the number of tokens that these needs, of one candidate, ask for.
  std::int32_t num_tokens(Range sequences) const {
    std::int32_t tokens = 0;
    for (std::int32_t i = 0; i < sequences.count; ++i)
      tokens += needs[static_cast<std::size_t>(sequences.first + i)].num_new_tokens;
    return tokens;
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.token_budget, self.running, self.swapped, self.waiting, self.needs, self.shares,
                 self.prompts_only, self.discarded, self.memory_lost);
  }
};

/// Decides the content of the next MemoryRequest: the budget, which sequences run and which pause, which swapped groups
/// come back, and how many waiting sequences are offered. Learns from the answers. At most one request is unanswered.
class BatchPlanner {
 public:
  BatchPlanner(const SchedulerConfig& config, GroupTable& table)
      : config_(config), table_(table), drafts_(config, table, step_time_curve_) {}
  BatchPlanner(const BatchPlanner&) = delete;
  BatchPlanner& operator=(const BatchPlanner&) = delete;

  /// Returns the next MemoryRequest, unless one is unanswered or there is nothing to plan. Steps up to `last_completed`
  /// have passed.
  std::optional<MemoryRequest> next(TimeUs now, StepId last_completed, std::span<const InFlightStep> in_flight);
  /// Returns the unanswered request.
  const std::optional<PendingGrant>& pending() const { return pending_; }
  /// Returns the last step that was planned; 0 = none.
  StepId last_planned() const { return next_step_ - 1; }

  /// Returns whether the next plan may contain drafts. It may if no request waits for a place, and if drafts take no
  /// memory that others could need, whatever runs.
  bool may_draft() const;

  /// Returns the unanswered request and forgets it. Call when the answer has come.
  PendingGrant take_pending();
  /// Sets how many waiting sequences the next plan may offer, by how much of this plan had room.
  void limit_offers(const PendingGrant& pending, const MemoryGrant& answer);
  /// Call when the whole answer is applied.
  void on_applied(const PendingGrant& pending, bool anything_runs);
  /// Call when the workers were replaced: nothing of the unanswered plan will run.
  void discard_pending(bool memory_lost);

  /// Makes next() plan again after a plan that would have run nothing.
  void invalidate_plan() { changed_ = true; }
  /// Call when rows or memory became free: then all waiting sequences may have room again.
  void on_capacity_freed();

  /// Returns the number of rows that sequences of the queue may take: the free rows, or fewer if target_step_us has no
  /// time for more decodes. If no rows are reserved, the first group of the queue always gets its rows.
  std::int32_t num_rows_for_new() const;

  /// Records the duration of a step, of which the runs of the draft model took `draft_us`.
  void step_measured(const InFlightStep& step, TimeUs duration_us, TimeUs draft_us);
  /// See DraftPlanner.
  void made_drafts_verified(Sequence* sequence, std::int32_t num_drafts, std::int32_t num_right) {
    drafts_.made_drafts_verified(sequence, num_drafts, num_right);
  }
  void swap_measured(const SwapMeasured& measured) { cost_.swap_measured(measured.bytes, measured.duration_us); }
  /// Returns the average duration of a step of this many tokens; 0 before the first measurement.
  double step_us(std::int64_t num_tokens) const { return step_time_curve_.us_of(num_tokens); }
  double measured_swap_bytes_per_s() const { return cost_.measured_swap_bytes_per_s(); }

  void save(Encoder& out) const;
  /// Restores a saved state. The planner must be new. Returns false if the bytes are no such state.
  bool load(Decoder& in);

 private:
  static constexpr std::size_t kAllOffers = std::numeric_limits<std::size_t>::max();

  /// The state between two plans.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.pending_, self.next_step_, self.changed_, self.decodes_first_, self.max_offers_,
                 self.next_to_pause_, self.cost_, self.available_blocks_, self.step_times_, self.step_time_curve_,
                 self.step_lateness_, self.last_prompt_step_us_, self.drafts_);
  }

  void plan_drafts(std::int32_t token_budget);
  /// Returns the group of the queue that is offered first.
  const SequenceGroup* first_of_queue() const;
  /// Returns whether waiting groups may come in now, if there is room for them.
  bool admission_wanted(TimeUs now, bool steps_in_flight) const;
  /// Returns whether the first group of the queue has the rows to begin. Call if there is one.
  bool head_has_rows() const;
  /// Returns how many more rows target_step_us has time for, at most the free rows; negative if more rows are reserved
  /// already.
  std::int32_t rows_within_target() const;
  bool delay_has_passed(TimeUs now, bool steps_in_flight) const;
  /// Returns whether the group runs if it can: no other group is to run alone, and its adapter has a place in the step.
  bool may_run(const SequenceGroup& group) const;
  /// Counts what runs, for the functions below.
  void count_running(std::span<const InFlightStep> in_flight);
  /// Returns the number of sequences that may decode in the next step, of the `num_runnable` that could: with stages,
  /// an equal part of all that decode, those in flight included.
  std::int32_t share_of_step(std::int32_t num_runnable, std::span<const InFlightStep> in_flight) const;
  /// Sets which sequences decode in the next step, and which are set aside, as its share is used up. Those come first
  /// that have waited longest.
  void set_others_aside(std::span<const InFlightStep> in_flight);
  /// Returns the number of tokens of the largest step that takes at most target_step_us in 199 of 200 cases.
  double tokens_in_target() const;
  /// Returns the number of tokens of the largest step that takes at most max_stretch times as long as the decodes
  /// alone, in 199 of 200 cases.
  double tokens_in_stretch() const;
  /// Returns the token budget of the next step. While sequences decode, prompts get a limited time, and at least one
  /// token.
  std::int32_t step_budget() const;
  /// Chooses the adapters of the step: those of running groups, in the order in which the groups are served. Groups
  /// that find no place for their adapter pause.
  void choose_adapters();
  std::int32_t num_pausing(std::int32_t token_budget, bool may_admit) const;
  /// Returns the number of tokens of `chunk_budget` that prompts leave to the first swapped group: those for which
  /// max_num_batched_tokens has no room beside `token_budget`. Returns 0 if the group has no rows, if a waiting group
  /// without rows comes in before it, or if prompts would get no token.
  std::int32_t tokens_kept_for(std::span<const SequenceGroup* const> swapped, std::int32_t token_budget,
                               std::int32_t chunk_budget) const;
  std::int32_t add_running_candidates(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped,
                                      bool may_admit);
  void add_need(MemoryRequest& plan, const Sequence& sequence, std::int32_t num_tokens);

  /// Returns whether a prompt with this many tokens left to compute is long.
  bool is_long(std::int32_t num_tokens) const;
  std::int32_t max_short_prompt_tokens() const;
  /// Returns the number of tokens of a step that long prompts leave to other prompts, running or waiting: at most half
  /// of `budget`.
  std::int32_t tokens_for_short_prompts(std::int32_t budget, bool of_running, bool of_waiting) const;

  /// The rows and tokens of a step that are left for admissions.
  struct Room {
    std::int32_t free_rows = 0;     ///< number of rows for swapped groups
    std::int32_t rows_for_new = 0;  ///< number of rows for waiting groups
    std::int32_t used_tokens = 0;   ///< number of tokens used of the step's budget
    /// Number of waiting sequences offered; each computes at least one token.
    std::int32_t num_offered = 0;
    std::optional<std::int32_t> short_tokens;  ///< number of tokens left to short waiting prompts

    void take_rows(std::int32_t count) {
      free_rows -= count;
      rows_for_new -= count;
    }
  };
  /// Offers swapped and waiting groups in one order, as far as there are rows and tokens.
  void add_incoming_candidates(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped, std::int32_t used,
                               bool with_waiting);
  bool add_swapped_group(const SequenceGroup& group, MemoryRequest& plan, Room& room);
  bool add_waiting_group(SequenceGroup& group, MemoryRequest& plan, Room& room);
  std::int32_t within_logprobs(const SequenceGroup& group, std::int32_t tokens);
  AdmissionCandidate admission_of(const SequenceGroup& group, Sequence& sequence) const;
  /// Sets how many running candidates give way to the first group that waits or is swapped out. `is_delay_over`:
  /// whether a group that waits may come in now.
  void let_less_urgent_give_way(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped,
                                bool is_delay_over) const;
  /// Sets how many running candidates give way to the group that runs alone.
  void let_all_give_way_to(const SequenceGroup& solo, MemoryRequest& plan) const;
  std::int32_t rows_freed_by(const RunningCandidate& candidate) const;
  /// Returns the swapped groups in the order in which they come back.
  std::vector<const SequenceGroup*> swapped_in_order() const;
  PreemptionMode preemption_of(const SequenceGroup& group) const;
  void expect_answer(const MemoryRequest& plan, bool prompts_only);

  const SchedulerConfig& config_;
  GroupTable& table_;

  // For the current plan: number of running sequences that decode in the step, that may run tokens of their prompts,
  // and of these with long prompts.
  std::int32_t num_decoding_ = 0;
  std::int32_t num_prompts_ = 0;
  std::int32_t num_long_prompts_ = 0;
  /// For the current plan, with stages: whether a candidate is set aside, by the order of those that could decode.
  std::vector<bool> set_aside_;
  StepAdapters adapters_;           ///< of the current plan
  std::vector<bool> shares_;        ///< of the current plan: see PendingGrant
  std::vector<std::int32_t> rows_;  ///< of the current plan: WaitingRef::num_rows
  /// For the current plan: number of long prompts that it runs in part, so that they run on in later steps.
  std::int32_t num_partial_long_prompts_ = 0;
  /// For the current plan: number of prompt log-probabilities that its results still have room for.
  std::int64_t logprobs_left_ = 0;
  std::optional<PendingGrant> pending_;
  StepId next_step_ = 1;
  bool changed_ = true;  ///< whether an event happened since a plan that ran nothing
  /// Whether a step of prompts alone ran nothing, so that it is the turn of running sequences.
  bool decodes_first_ = false;
  /// Maximum number of waiting sequences to offer. The number that can start is not known before the lookup in the
  /// prefix cache, and offers that find no room cost time.
  std::size_t max_offers_ = kAllOffers;
  std::int32_t next_to_pause_ = 0;  ///< index among the sequences that decode

  PreemptionCost cost_;
  std::int64_t available_blocks_ = 0;  ///< number of available blocks at the last answer
  StepTimes step_times_;
  StepTimeCurve step_time_curve_;
  DraftPlanner drafts_;
  StepLateness step_lateness_;
  TimeUs last_prompt_step_us_ = 0;  ///< duration of the last step with prompts
};

}  // namespace pagoda::scheduling
