#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/preemption_cost.hpp"
#include "engine/scheduling/scheduler_config.hpp"
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
  std::int32_t num_rows = 0;  ///< batch rows that are reserved when it is admitted

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.num_rows);
  }
};

/// What a MemoryRequest has asked for, until it is answered.
struct PendingGrant {
  StepId step = 0;
  std::int32_t token_budget = 0;
  std::vector<RunningCandidate> running;
  std::vector<SwapInCandidate> swapped;
  std::vector<WaitingRef> waiting;
  std::vector<SequenceNeed> needs;
  std::vector<bool> shares;   ///< by need: others may share what it computes
  bool prompts_only = false;  ///< nothing that runs was asked for
  bool discarded = false;     ///< the workers were replaced meanwhile
  bool memory_lost = false;   ///< the KV memory, too: no move of its plan happens, and nobody waits for its step

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.token_budget, self.running, self.swapped, self.waiting, self.needs, self.shares,
                 self.prompts_only, self.discarded, self.memory_lost);
  }
};

/// Decides what the block manager is asked to fit into the next step: the budget, who runs and who pauses, who comes
/// back, how many of those that wait are offered. Learns from what became of it. One plan is unanswered at most.
class BatchPlanner {
 public:
  BatchPlanner(const SchedulerConfig& config, GroupTable& table) : config_(config), table_(table) {}
  BatchPlanner(const BatchPlanner&) = delete;
  BatchPlanner& operator=(const BatchPlanner&) = delete;

  /// The next MemoryRequest, unless one is unanswered or there is nothing to plan. Steps up to `last_completed` have
  /// passed; others may be in flight.
  std::optional<MemoryRequest> next(TimeUs now, StepId last_completed, bool steps_in_flight);
  /// The plan that is unanswered.
  const std::optional<PendingGrant>& pending() const { return pending_; }
  /// The last step that was planned; 0 = none.
  StepId last_planned() const { return next_step_ - 1; }

  /// Whether there may be drafts in the next plan: nobody waits for their places, and whatever runs, they take no
  /// memory that others need.
  bool may_draft() const;

  /// The plan is answered.
  PendingGrant take_pending();
  /// How much of the plan had room says how many to offer in the next one.
  void limit_offers(const PendingGrant& pending, const MemoryGrant& answer);
  /// All of the answer is applied.
  void was_applied(const PendingGrant& pending, bool anything_runs);
  /// The workers were replaced: nothing of the unanswered plan will run.
  void discard_pending(bool memory_lost);

  /// A plan that would have run nothing is to be made again.
  void invalidate_plan() { changed_ = true; }
  /// Rows or memory became free: there may be room for everybody again.
  void on_capacity_freed();

  /// Rows that sequences of the queue may take: those that are free, or fewer where more would decode than
  /// target_step_us has time for. Who is first always has rows when nothing else runs.
  std::int32_t num_rows_for_new() const;

  /// A step ran `num_tokens`, `num_prompt_tokens` of them in chunks of prompts.
  void step_measured(std::int64_t num_tokens, std::int64_t num_prompt_tokens, TimeUs duration_us);
  void swap_measured(const SwapMeasured& measured) { cost_.swap_measured(measured.bytes, measured.duration_us); }
  /// What a step of so many tokens takes on average; 0 before the first measurement.
  double step_us(std::int64_t num_tokens) const { return step_time_curve_.us_of(num_tokens); }
  double measured_swap_bytes_per_s() const { return cost_.measured_swap_bytes_per_s(); }

  void save(Encoder& out) const;
  /// Of a new planning. False when the bytes are none.
  bool load(Decoder& in);

 private:
  static constexpr std::size_t kAllOffers = std::numeric_limits<std::size_t>::max();

  /// What lies between two plans.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.pending_, self.next_step_, self.changed_, self.decodes_first_, self.most_offers_,
                 self.next_to_pause_, self.cost_, self.available_blocks_, self.step_times_, self.step_time_curve_,
                 self.step_lateness_, self.last_prompt_step_us_);
  }

  void drop_drafts();
  /// Who is offered before others of the queue.
  const SequenceGroup* first_of_queue() const;
  bool admission_wanted(TimeUs now, bool steps_in_flight) const;
  bool delay_has_passed(TimeUs now, bool steps_in_flight) const;
  /// Running sequences that are through with their prompts.
  std::int32_t num_decoding() const;
  /// Of the largest step that is in time for target_step_us but once in 200.
  double tokens_in_target() const;
  bool runs_prompts() const;
  /// Of the largest step that takes most_stretch times as long as the decodes alone, but once in 200.
  double tokens_in_stretch(std::int32_t decoding) const;
  /// Tokens of the next step: while somebody decodes, prompts get a limited time, and at least a token.
  std::int32_t step_budget(std::int32_t decoding) const;
  std::int32_t num_pausing(std::int32_t token_budget, std::int32_t decoding, bool may_admit) const;
  std::int32_t add_running_candidates(MemoryRequest& plan, std::int32_t decoding, bool may_admit);
  void add_need(MemoryRequest& plan, const Sequence& sequence, std::int32_t num_tokens);

  /// Tokens that are left to compute of a prompt make it a long one.
  bool is_long(std::int32_t num_tokens) const;
  std::int32_t most_of_short_prompt() const;
  /// Long prompts that run.
  std::int32_t num_long_prompts() const;
  /// Tokens of a step that long prompts leave to other prompts that run, and that wait: at most half of `budget`.
  std::int32_t tokens_for_short_prompts(std::int32_t budget, bool of_running, bool of_waiting) const;

  /// Rows and tokens of a step that are left for those that come in.
  struct Room {
    std::int32_t free_rows = 0;                ///< for those that are swapped in
    std::int32_t rows_for_new = 0;             ///< for those that wait
    std::int32_t used_tokens = 0;              ///< of the step's budget
    std::int32_t num_offered = 0;              ///< waiting sequences; each computes a token at least
    std::optional<std::int32_t> short_tokens;  ///< that long prompts leave to others that wait

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
  /// Says which running candidates give way to the first group that waits or is swapped out.
  void let_less_urgent_give_way(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped) const;
  /// Likewise to the group that runs alone.
  void let_all_give_way_to(const SequenceGroup& alone, MemoryRequest& plan) const;
  std::int32_t rows_freed_by(const RunningCandidate& candidate) const;
  /// Swapped groups, in the order in which they come back.
  std::vector<const SequenceGroup*> swapped_in_order() const;
  PreemptionMode preemption_of(const SequenceGroup& group) const;
  void expect_answer(const MemoryRequest& plan, bool prompts_only);

  const SchedulerConfig& config_;
  GroupTable& table_;

  std::vector<bool> shares_;        ///< of the plan that is made: see PendingGrant
  std::vector<std::int32_t> rows_;  ///< likewise: WaitingRef::num_rows
  std::int32_t num_partial_long_prompts_ =
      0;                            ///< likewise: long prompts of which it runs a part, and that run on behind it
  std::int64_t logprobs_left_ = 0;  ///< likewise: log-probabilities of prompts that its results have room for
  std::optional<PendingGrant> pending_;
  StepId next_step_ = 1;
  bool changed_ = true;         ///< something happened since a plan that ran nothing
  bool decodes_first_ = false;  ///< a step of prompts alone came to nothing: what runs has its turn
  /// Waiting groups to offer at most. How many would start is not known before the prefix cache was asked; what was
  /// offered in vain costs time.
  std::size_t most_offers_ = kAllOffers;
  std::int32_t next_to_pause_ = 0;  ///< among the sequences that decode

  PreemptionCost cost_;
  std::int64_t available_blocks_ = 0;  ///< when the last plan was answered
  StepTimes step_times_;
  StepTimeCurve step_time_curve_;
  StepLateness step_lateness_;
  TimeUs last_prompt_step_us_ = 0;  ///< what the last step with prompts took
};

}  // namespace pagoda::scheduling
