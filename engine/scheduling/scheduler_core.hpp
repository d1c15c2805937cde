#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/request/live_request.hpp"
#include "engine/scheduling/batch_planner.hpp"
#include "engine/scheduling/decoding.hpp"
#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/jump_forward_tokens.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/step_builder.hpp"
#include "engine/stats.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::scheduling {

/// Decides what runs in each step: keeps the groups (GroupTable), has the next step asked for (BatchPlanner), and says
/// what answers and results mean. A deterministic state machine: events in, MemoryRequest / ExecuteStep / StepOutputs
/// out; no actor, no clock, no randomness. Not thread-safe: one owner.
///
///   next_memory_request()      -> MemoryRequest     to the block manager; at most one is unanswered
///   on_memory_grant()   -> ExecuteStep  to the workers, when anything runs
///   take_mask_jobs() -> MaskJobs     to threads, when the tokens are known that a step's masks depend on; what becomes
///                                    of them comes back as masks_made(), or else masks_late()
///   take_masks()     -> StepMasks    to the workers, when has_masks_to_send(); until then no next_memory_request() is
///   asked for on_step_result()                 frees the step's place in the pipeline; new tokens gather for
///   take_outputs()
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
  /// Likewise, and the request's time is over: it fails with `error`.
  void expire_group(RequestId request, const Error& error);
  /// A stop string ended a sequence; its tokens in flight are dropped.
  void stop_hit(const StopHit& hit);
  /// The answer to the MemoryRequest of next_memory_request(). Empty when nothing runs in the step.
  std::optional<ExecuteStep> on_memory_grant(const MemoryGrant& plan, TimeUs now);
  /// Results come in the order of the steps. Those of a worker that was replaced are ignored.
  void on_step_result(const StepResult& result);
  /// The swaps of a plan have passed; says what swapping costs.
  void swap_measured(const SwapMeasured& measured);
  /// New workers took the place of dead ones: they have no rows, and every step in flight is lost, so what ran must be
  /// recomputed from the tokens it has. With `memory_lost` the KV memory is new as well. `crashed`: what ran may be the
  /// reason, as it cannot be where a worker was killed from outside.
  void device_replaced(bool memory_lost, bool crashed);
  /// Masks of take_mask_jobs(), of this core or of another with the same state; those that nobody waits for are
  /// ignored. Their words are passed on by take_masks(); a core that lacks them (a replay's) does the same as one that
  /// has them.
  void masks_made(std::vector<MadeMask> made);
  /// The masks of these sequences are not made in time for the first step in flight: they sample nothing in it, and run
  /// again when their masks are made. No tokens change by that.
  void masks_late(std::span<const SequenceId> sequences);
  /// The next plan has the block manager forget its prefix cache.
  void forget_prefixes() { table_.pending_updates.forget_prefixes = true; }

  // -- effects -------------------------------------------------------------------------------------------------------
  /// The next MemoryRequest, when the pipeline has room and there is something to plan.
  std::optional<MemoryRequest> next_memory_request(TimeUs now);
  /// Jobs for the masks that the first step in flight waits for, and those that the prompts in flight will need at
  /// their ends, each once: all tokens that they depend on are known. Not part of the state.
  std::vector<MaskJob> take_mask_jobs();
  /// A job for the next mask of any sequence; none where its request has no grammar. For replays.
  std::optional<MaskJob> mask_job_of(SequenceId sequence);
  /// The masks that are made and that no step has taken. For replays, whose states lack the words of masks.
  std::vector<MadeMask> made_masks() const;
  /// The masks of the first step in flight, which waits for them: those that are made.
  std::optional<StepMasks> take_masks();
  /// What the output processor must be told since the last call.
  StepOutputs take_outputs();

  // -- facts ---------------------------------------------------------------------------------------------------------
  /// The first step in flight if it waits for masks; 0 = it does not.
  StepId step_awaiting_masks() const {
    return !in_flight_.empty() && in_flight_.front().waits_for_masks ? in_flight_.front().step : 0;
  }
  /// Whether it waits for masks, and each is made or late.
  bool has_masks_to_send() const { return step_awaiting_masks() != 0 && missing_masks().empty(); }
  /// The sequences of that step whose masks are neither made nor late.
  std::vector<SequenceId> missing_masks() const;
  /// How long that step may wait for masks without a delay of the steps behind it.
  TimeUs mask_wait_us() const;
  EngineStats stats() const;
  /// What it has counted beside its stats since it was made. Not part of its state: nothing follows from it.
  const metrics::StepMetrics& metrics() const { return metrics_; }
  /// The live requests and the steps in flight.
  view::Queues queues() const;
  std::size_t steps_in_flight() const { return in_flight_.size(); }
  /// What the sequence's request asks for; null when its group has ended. Valid as long as that lives.
  const RequestSpec* spec_of(SequenceId sequence) const;
  /// The last of them; 0 = none.
  StepId last_step_in_flight() const { return in_flight_.empty() ? 0 : in_flight_.back().step; }
  /// Every sequence that holds KV, as a worker that knows nothing would be told of it; `row` is -1 of those that have
  /// none. `tokens_so_far` lack what steps in flight sample.
  std::vector<NewRow> sequences_with_kv() const;
  /// What the row of such a sequence was told that follows its first sample in flight.
  TokenIds forced_sent_to_row(SequenceId sequence) const;
  /// Where every group is; in the order of their ids.
  std::vector<GroupProgress> progress() const;
  std::size_t num_groups() const { return table_.groups.size(); }
  /// The group that is served first of those that wait.
  std::optional<RequestId> head_of_queue() const { return table_.head_of_queue(); }
  /// Whether requests are held back because one of those that ran may have crashed workers.
  bool holds_a_trial() const { return !table_.quarantine.is_empty(); }
  std::int32_t num_rows_for_new() const { return batch_planner_.num_rows_for_new(); }
  bool plan_outstanding() const { return batch_planner_.pending().has_value(); }
  /// True when no group is left and the block manager has been told of every release.
  bool idle() const {
    return table_.groups.empty() && !table_.pending_updates.must_be_sent() && !plan_outstanding() && in_flight_.empty();
  }
  /// Those of GroupTable, and that steps in flight are not too many and counted right. The first broken one, or
  /// nothing.
  std::optional<std::string> check_invariants() const;

  // -- state ---------------------------------------------------------------------------------------------------------
  /// All that later effects depend on, between any two events. A core that has loaded it goes on as this one does.
  void save(Encoder& out) const;
  /// Of a new core with the config of the one that was saved. False when the bytes are no such state; the core is of no
  /// use then.
  bool load(Decoder& in);
  /// Specs have no grammars when they were read from bytes: `compile` brings them, or null. Before anything else.
  void compile_grammars(const std::function<grammar::SharedGrammar(const StructuredOutput&)>& compile);

 private:
  /// What is neither the table's nor the planning's.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.in_flight_, self.last_completed_step_, self.outputs_, self.stats_);
  }

  static void go_on_from(const RequestProgress& progress, SequenceGroup& group);

  // answers
  void run_rows(const PendingGrant& pending, RequestId group, Range rows, StepBuilder& building);
  void leave_out(SequenceId admitted, StepId step);
  void outgrew(SequenceGroup& group, Sequence& sequence);
  Sequence* first_running(SequenceGroup* group, const PendingGrant& pending, Range sequences);
  void come_back(const PendingGrant& pending, const SwapInCandidate& candidate, AllocStatus status,
                 SequenceGroup& group);
  void apply_running(const PendingGrant& pending, const MemoryGrant& plan, StepBuilder& building);
  void apply_swapped(const PendingGrant& pending, const MemoryGrant& plan, StepBuilder& building);
  void apply_waiting(const PendingGrant& pending, const MemoryGrant& plan, StepBuilder& building, TimeUs now);

  // results
  SequenceGroup* ended_work(const WorkRef& work);
  void fail_work(const WorkRef& work, const Error& error);
  void accept(const WorkRef& work, const RowResult& row, const StepResult& result);
  void report_prompt_logprobs(SequenceGroup& group, std::span<const TokenReport> reports);

  // masks
  Sequence* sequence_of(const WorkRef& work) const;
  Sequence* missing_mask(const WorkRef& work) const;
  Sequence* unsampled_prompt(const WorkRef& work) const;
  MaskJob mask_job(SequenceGroup& group, Sequence& sequence, std::int32_t most_drafts) const;
  void add_masks(std::size_t place, const Sequence& sequence, StepMasks& masks) const;
  void apply_jump_forward(Sequence& sequence, const JumpForwardTokens& jump_forward);
  void be_late(WorkRef& work, SequenceGroup& group, Sequence& sequence);

  // how groups stop
  void preempt(SequenceGroup& group, Sequence& sequence, SequenceState to);
  void interrupted(const SequenceGroup& group, Interruption what);
  void restart(SequenceGroup& group);
  void restart_readers(StepId first_failed);
  void find_culprit(const std::set<RequestId>& ran, bool ended_ran);
  void end_passed_trial();
  void end_group(SequenceGroup& group, std::optional<Error> error);
  /// Ends the sequences that have outgrown the pool and await no result. The group may end with them.
  void cut_outgrown(SequenceGroup& group);
  void erase_group(SequenceGroup& group);

  // what strategies do to their groups
  Sequence fork_of(const Sequence& parent, const SequenceGroup& group) override {
    return table_.fork_of(parent, group);
  }
  void mark_dirty(const Sequence& sequence) override;
  void drop(Sequence& sequence) override;
  void finish(SequenceGroup& group, Sequence& sequence) override;
  void emit(SequenceOutput output) override { outputs_.outputs.push_back(std::move(output)); }
  void generated(std::int64_t num_tokens) override { stats_.generation_tokens_total += num_tokens; }

  SchedulerConfig config_;
  GroupTable table_;
  BatchPlanner batch_planner_;
  std::vector<InFlightStep> in_flight_;
  StepId last_completed_step_ = 0;
  StepOutputs outputs_;
  EngineStats stats_;
  metrics::StepMetrics metrics_;
  StepId masks_asked_ = 0;     ///< the last step of which take_mask_jobs() has returned the jobs; no state
  StepId last_step_seen_ = 0;  ///< the last whose prompts it has looked at; likewise
  // For the metrics.
  TimeUs asked_us_ = 0;               ///< when the last plan was asked for
  std::optional<TimeUs> lost_at_us_;  ///< when the steps began that a worker was lost over, until another ends a step
};

}  // namespace pagoda::scheduling
