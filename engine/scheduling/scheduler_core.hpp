#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/config.hpp"
#include "engine/scheduling/preemption_cost.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/step_times.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/stats.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;             ///< batch rows; at most max_num_batched_tokens
  std::int32_t max_num_batched_tokens = 2048;  ///< tokens per step; without chunked prefill at least the longest prompt
  std::int32_t pipeline_depth = 2;
  bool enable_chunked_prefill = true;
  bool can_swap = false;               ///< there is a host pool
  std::int64_t block_bytes = 0;        ///< what a swap moves per block
  std::int32_t num_device_blocks = 0;  ///< told in stats before the first step
  std::int32_t num_host_blocks = 0;    ///< likewise
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  double priority_aging_s = 0;  ///< see make_waiting_queue
  TimeUs max_chunk_us = 0;      ///< prompts add about so much to a step in which others decode; 0 = no limit
  double delay_factor = 0;      ///< prompts wait so many times the last prompt step's time while others run
  PreemptionPolicy preemption = PreemptionPolicy::recompute;
  std::vector<TokenId> eos_token_ids;
};

/// Tokens of prompts, and of prompts and decodes together, that a step has room for whatever max_chunk_us is: fewer
/// would not make use of the weights.
inline constexpr std::int32_t kLeastChunk = 16;
inline constexpr std::int32_t kLeastBatch = 32;

/// Prompts have an eighth of a step, however many decode.
inline constexpr std::int32_t kPromptShare = 8;

/// A group that was running when so many workers died fails: it may be what kills them.
inline constexpr std::int32_t kMaxWorkersLost = 3;

/// Decides what runs in each step. A deterministic state machine: events in, PlanStep / ExecuteStep / StepOutputs out;
/// no actor, no clock, no randomness. Not thread-safe: one owner.
///
///   next_plan()      -> PlanStep     to the block manager; at most one is unanswered
///   on_step_plan()   -> ExecuteStep  to the workers, when anything runs
///   on_step_result()                 frees the step's place in the pipeline; new tokens gather for take_outputs()
///
/// With step k in flight, step k+1 counts one placeholder token for each sequence that k samples. A sequence that turns
/// out to have ended in k wastes one row of k+1, whose result is dropped.
class SchedulerCore final : private GroupEffects {
 public:
  explicit SchedulerCore(SchedulerConfig config);

  // -- events --------------------------------------------------------------------------------------------------------
  void add_group(SharedSpec spec);
  /// Ends the group wherever it is; a group that has ended or never was is ignored.
  void abort_group(RequestId request);
  /// A stop string ended a sequence; its tokens in flight are dropped.
  void stop_hit(const StopHit& hit);
  /// The answer to the PlanStep of next_plan(). Empty when nothing runs in the step.
  std::optional<ExecuteStep> on_step_plan(const StepPlan& plan, TimeUs now);
  /// Results come in the order of the steps. Those of a worker that was replaced are ignored.
  void on_step_result(const StepResult& result);
  /// The swaps of a plan have passed; says what swapping costs.
  void swap_measured(const SwapMeasured& measured);
  /// New workers took the place of dead ones: they have no rows, and every step in flight is lost, so what ran must be
  /// recomputed from the tokens it has. With `memory_lost` the KV memory is new as well.
  void device_replaced(bool memory_lost);

  // -- effects -------------------------------------------------------------------------------------------------------
  /// The next PlanStep, when the pipeline has room and there is something to plan.
  std::optional<PlanStep> next_plan(TimeUs now);
  /// What the output processor must be told since the last call.
  StepOutputs take_outputs();

  // -- facts ---------------------------------------------------------------------------------------------------------
  EngineStats stats() const;
  std::size_t steps_in_flight() const { return in_flight_.size(); }
  std::size_t num_groups() const { return groups_.size(); }
  /// The group that is served first of those that wait.
  std::optional<RequestId> head_of_queue() const;
  std::int32_t num_free_rows() const { return config_.max_num_seqs - rows_reserved_; }
  bool plan_outstanding() const { return pending_.has_value(); }
  /// True when no group is left and the block manager has been told of every release.
  bool idle() const { return groups_.empty() && releases_.empty() && !pending_ && in_flight_.empty(); }
  /// Each live sequence is in one state and its group in that state's queue, rows are used once, counters agree. The
  /// first broken one, or nothing.
  std::optional<std::string> check_invariants() const;

 private:
  static constexpr std::size_t kAllOffers = std::numeric_limits<std::size_t>::max();

  struct WaitingRef {
    RequestId group = 0;
    SequenceId sequence = 0;
  };
  /// What the unanswered PlanStep asked for.
  struct PendingPlan {
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
  };
  /// One sequence's part in a step in flight.
  struct WorkRef {
    RequestId group = 0;
    SequenceId sequence = 0;
    std::int32_t epoch = 0;
    std::int32_t num_samples = 0;
    bool dropped = false;  ///< it read what a failed step was to compute: the result means nothing
  };
  struct InFlightStep {
    StepId step = 0;
    std::vector<WorkRef> work;
    std::int64_t num_tokens = 0;
    std::int64_t num_prompt_tokens = 0;  ///< of them, in chunks of prompts
  };

  // planning
  bool admission_wanted(TimeUs now) const;
  bool delay_has_passed(TimeUs now) const;
  void report_progress(PlanStep& plan);
  /// Running sequences that are through with their prompts.
  std::int32_t num_decoding() const;
  /// Tokens of the next step: while somebody decodes, prompts get a limited time.
  std::int32_t step_budget(std::int32_t decoding) const;
  std::int32_t num_pausing(std::int32_t token_budget, std::int32_t decoding, bool may_admit) const;
  std::int32_t add_running_candidates(PlanStep& plan, std::int32_t decoding, bool may_admit);
  void add_need(PlanStep& plan, const Sequence& sequence, std::int32_t num_tokens);
  void expect_answer(const PlanStep& plan, bool prompts_only);
  std::int32_t add_swapped_candidates(PlanStep& plan, std::int32_t rows);
  void add_waiting_candidates(PlanStep& plan, std::int32_t token_budget, std::int32_t rows);
  PreemptionMode preemption_of(const SequenceGroup& group) const;

  // answers
  void run_rows(const PendingPlan& pending, RequestId group, Range rows, ExecuteStep& step);
  void leave_out(SequenceId admitted, StepId step);
  void outgrew(SequenceGroup& group);
  void limit_offers(const PendingPlan& pending, const StepPlan& plan);
  void apply_running(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step);
  void apply_swapped(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step);
  void apply_waiting(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step, TimeUs now);
  RowSpec row_spec(const SequenceGroup& group) const;
  void run(SequenceGroup& group, Sequence& sequence, std::int32_t num_tokens, ExecuteStep& step);
  void copy_table_deltas(const StepPlan& plan, ExecuteStep& step);
  void preempt(SequenceGroup& group, SequenceState to);
  void recompute(SequenceGroup& group);
  void recompute_readers(StepId first_failed);
  void steps_failed(StepId first);
  void drop_kv(Sequence& sequence);
  void reserve_rows(SequenceGroup& group);
  void give_row_back(Sequence& sequence);

  // results
  SequenceGroup* ended_work(const WorkRef& work);
  void fail_work(const WorkRef& work, const Error& error);
  void accept(const WorkRef& work, const RowResult& row, const StepResult& result);
  void report_prompt_logprobs(SequenceGroup& group, std::span<const TokenReport> reports);
  void let_go(Sequence& sequence);
  void finish_sequence(SequenceGroup& group, Sequence& sequence);
  void end_group(SequenceGroup& group, std::optional<Error> error);
  void end_with_length(SequenceGroup& group);
  void fail_killers_of_workers(const std::vector<RequestId>& running);
  void erase_group(SequenceGroup& group);
  void place(SequenceGroup& group);
  void something_was_freed();

  // what strategies do to their groups
  Sequence fork_of(const Sequence& parent, const SequenceGroup& group) override;
  void has_news(const Sequence& sequence) override;
  void drop(Sequence& sequence) override;
  void finish(SequenceGroup& group, Sequence& sequence) override { finish_sequence(group, sequence); }
  void tell(SequenceOutput output) override { outputs_.outputs.push_back(std::move(output)); }
  void generated(std::int64_t num_tokens) override { stats_.generation_tokens_total += num_tokens; }

  SequenceGroup* find(RequestId id);
  Sequence* find(SequenceGroup* group, SequenceId id);

  SchedulerConfig config_;
  std::unordered_map<RequestId, std::unique_ptr<SequenceGroup>> groups_;
  std::unique_ptr<WaitingQueue> waiting_;
  std::vector<SequenceGroup*> running_;  ///< groups with a running sequence, in serving order
  std::vector<SequenceGroup*> swapped_;  ///< groups with a swapped sequence, in serving order
  std::unordered_map<SequenceId, RequestId> group_of_;
  std::vector<RowId> free_rows_;
  std::vector<RowId> rows_gone_;  ///< to be told with the next ExecuteStep
  std::int32_t rows_reserved_ = 0;

  // to be told with the next PlanStep
  std::vector<SequenceId> to_report_;
  std::vector<SampledToken> sampled_;
  std::vector<SequenceProgress> progress_;
  std::vector<Fork> forks_;
  std::vector<SequenceId> releases_;
  StepId first_failed_step_ = 0;
  bool device_memory_lost_ = false;

  std::vector<bool> shares_;  ///< of the plan that is made: see PendingPlan
  std::optional<PendingPlan> pending_;
  std::deque<InFlightStep> in_flight_;
  InFlightStep building_;
  StepId next_step_ = 1;
  StepId last_completed_step_ = 0;
  SequenceId next_sequence_ = 1;
  bool changed_ = true;         ///< something happened since a plan that ran nothing
  bool decodes_first_ = false;  ///< a step of prompts alone came to nothing: what runs has its turn
  /// Waiting groups to offer at most. How many would start is not known before the prefix cache was asked; what was
  /// offered in vain costs time.
  std::size_t most_offers_ = kAllOffers;
  std::int32_t next_to_pause_ = 0;  ///< among the sequences that decode

  PreemptionCost cost_;
  StepTimes step_times_;
  TimeUs last_prompt_step_us_ = 0;  ///< what the last step with prompts took

  StepOutputs outputs_;
  EngineStats stats_;
};

}  // namespace pagoda::scheduling
