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
#include "engine/scheduling/mask_manager.hpp"
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

/// Decides which tokens run in each step. Keeps the groups (GroupTable), requests memory for the next step
/// (BatchPlanner), and applies answers and results. A deterministic state machine: events in, MemoryRequest /
/// ExecuteStep / StepOutputs out; no actor, no clock, no randomness. Not thread-safe: one owner.
///
///   next_memory_request() -> MemoryRequest  to the block manager; at most one is unanswered
///   on_memory_grant()     -> ExecuteStep    to the workers, when anything runs
///   take_mask_jobs()      -> MaskJobs       to threads, when the tokens that the masks depend on are known;
///                                           the masks come back by masks_made(), or else masks_late() is called
///   take_masks()          -> StepMasks      to the workers, when has_masks_to_send(); without stages do not call
///                                           next_memory_request() before
///   on_step_result()                        frees the step's place in the pipeline and adds outputs for take_outputs()
///
/// With step k in flight, step k+1 counts one placeholder token for each sequence that k samples. If a sequence has
/// ended in k, its row of k+1 is wasted, and the result of this row is dropped. With pipeline stages
/// (SchedulerConfig::num_stages) a sequence that k samples waits for its result instead, and k+1 runs others.
class SchedulerCore final : private GroupEffects {
 public:
  explicit SchedulerCore(SchedulerConfig config);

  // -- events --------------------------------------------------------------------------------------------------------
  void add_group(SharedSpec spec);
  /// Ends the group in any state. A group that has ended or never existed is ignored.
  void abort_group(RequestId request);
  /// Gives a group in any state up, without an output: another scheduler continues it. Returns whether there is such a
  /// group. The group must not be added again before is_given_up().
  bool release_group(RequestId request);
  /// Returns whether no step and no plan that began before the release of a group is under way. `last_planned`: the
  /// last step that was planned then.
  bool is_given_up(StepId last_planned) const;
  StepId last_planned() const { return batch_planner_.last_planned(); }
  /// Ends the group because its time is over: it fails with `error`. An unknown group is ignored.
  void expire_group(RequestId request, const Error& error);
  /// Ends a sequence because of a stop string; its tokens in flight are dropped.
  void stop_hit(const StopHit& hit);
  /// Takes the answer to the MemoryRequest of next_memory_request(). Returns nothing when nothing runs in the step.
  std::optional<ExecuteStep> on_memory_grant(const MemoryGrant& grant, TimeUs now);
  /// Takes the results of a step, in the order of the steps. Results of a worker that was replaced are ignored.
  void on_step_result(const StepResult& result);
  /// Records the duration of the swaps of a plan, to estimate the cost of swapping.
  void swap_measured(const SwapMeasured& measured);
  /// Call when new workers have replaced dead ones. New workers have no rows, and every step in flight is lost, so
  /// running sequences must be recomputed from their tokens. `memory_lost`: the KV memory is new as well. `crashed`: a
  /// running request may be the reason; false if a worker was killed from outside.
  void device_replaced(bool memory_lost, bool crashed);
  /// Takes masks of take_mask_jobs(), of this core or of another core with the same state. Masks that are not needed
  /// any more are ignored. take_masks() passes on their words. A core without the words (in a replay) behaves like one
  /// with them.
  void masks_made(std::vector<MadeMask> made) { masks_.masks_made(std::move(made)); }
  /// Call when the masks of these sequences are not made in time for step_awaiting_masks(), or, with stages, for a
  /// later step. The sequences sample nothing in this step, and run again when their masks are made. Their tokens stay
  /// the same.
  void masks_late(std::span<const SequenceId> sequences) { masks_.masks_late(sequences); }
  /// Makes the next plan clear the block manager's prefix cache.
  void reset_prefix_cache() { table_.pending_updates.reset_prefix_cache = true; }

  // -- effects -------------------------------------------------------------------------------------------------------
  /// Returns the next MemoryRequest when the pipeline has room and there is something to plan.
  std::optional<MemoryRequest> next_memory_request(TimeUs now);
  /// Returns jobs for the masks that step_awaiting_masks() waits for (with stages, all steps in flight), and for the
  /// masks that prompts in flight will need at their ends. Each job is returned once, and all tokens that it depends on
  /// are known. Not part of the state.
  std::vector<MaskJob> take_mask_jobs() { return masks_.take_mask_jobs(); }
  /// Returns a job for the next mask of any sequence; nothing if its request needs no masks. For replays.
  std::optional<MaskJob> mask_job_of(SequenceId sequence) { return masks_.mask_job_of(sequence); }
  /// Returns the masks that are made and that no step has taken. For replays, whose states lack the words of masks.
  std::vector<MadeMask> made_masks() const { return masks_.made_masks(); }
  /// Returns the masks of step_awaiting_masks() that are made; nothing if there is no such step. With stages another
  /// step may have masks to send then.
  std::optional<StepMasks> take_masks() { return masks_.take_masks(); }
  /// Returns the outputs since the last call, for the output processor.
  StepOutputs take_outputs();

  // -- facts ---------------------------------------------------------------------------------------------------------
  /// Returns the step whose masks are sent next: the first step in flight if it waits for masks; with stages, the first
  /// that waits for masks, behind others. 0 = none.
  StepId step_awaiting_masks() const { return masks_.step_awaiting_masks(); }
  /// Returns whether there is such a step, and each of its masks is made or late.
  bool has_masks_to_send() const { return step_awaiting_masks() != 0 && missing_masks().empty(); }
  /// Returns the sequences of that step whose masks are neither made nor late.
  std::vector<SequenceId> missing_masks() const { return masks_.missing_masks(); }
  /// Returns how long that step may wait for masks without a delay of later steps.
  TimeUs mask_wait_us() const { return masks_.mask_wait_us(); }
  EngineStats stats() const;
  /// Returns counts beside the stats, since this core was made. They are not part of its state: no decision depends on
  /// them.
  const metrics::StepMetrics& metrics() const { return metrics_; }
  /// Returns the live requests and the steps in flight.
  view::Queues queues() const;
  std::size_t steps_in_flight() const { return in_flight_.size(); }
  /// Returns the spec of the sequence's request; null when its group has ended. Valid while the group lives.
  const RequestSpec* spec_of(SequenceId sequence) const;
  /// Returns the last step in flight; 0 = none.
  StepId last_step_in_flight() const { return in_flight_.empty() ? 0 : in_flight_.back().step; }
  /// Returns every sequence that holds KV, in the form in which a new worker receives it. `row` is -1 for a sequence
  /// without a row. `tokens_so_far` lack the samples of steps in flight.
  std::vector<NewRow> sequences_with_kv() const;
  /// Returns the forced tokens behind the first sample in flight that were sent to the row of such a sequence.
  TokenIds forced_sent_to_row(SequenceId sequence) const;
  /// Returns the state of every group, sorted by id.
  std::vector<GroupProgress> progress() const;
  std::size_t num_groups() const { return table_.groups.size(); }
  /// Returns the first group, in serving order, of those that wait and may run.
  std::optional<RequestId> head_of_queue() const { return table_.head_of_queue(); }
  /// Returns whether requests are held back because one of the running requests may have crashed workers.
  bool has_trial() const { return table_.quarantine.is_active(); }
  std::int32_t num_rows_for_new() const { return batch_planner_.num_rows_for_new(); }
  bool plan_outstanding() const { return batch_planner_.pending().has_value(); }
  /// Returns whether no group, plan or step is left, and the block manager has received every release.
  bool idle() const {
    return table_.groups.empty() && !table_.pending_updates.must_be_sent() && !plan_outstanding() && in_flight_.empty();
  }
  /// Checks the invariants of GroupTable, and the numbers of steps in flight. Returns the first broken invariant, or
  /// nothing.
  std::optional<std::string> check_invariants() const;

  // -- state ---------------------------------------------------------------------------------------------------------
  /// Writes all state that later effects depend on, between any two events. A core that loads it continues as this one.
  void save(Encoder& out) const;
  /// Restores a saved state. The core must be new and have the config of the saved one. Returns false if the bytes are
  /// no such state; the core must not be used then.
  bool load(Decoder& in);
  /// Sets the grammars of specs that were read from bytes: `compile` returns a grammar, or null. Call before any other
  /// function.
  void compile_grammars(const std::function<grammar::SharedGrammar(const StructuredOutput&)>& compile);

 private:
  /// The state outside of table_ and batch_planner_.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.in_flight_, self.last_completed_step_, self.outputs_, self.stats_);
  }

  // answers
  void run_rows(const PendingGrant& pending, RequestId group, Range rows, StepBuilder& building);
  void undo_admission(SequenceId admitted, StepId step);
  void outgrew(SequenceGroup& group, Sequence& sequence);
  Sequence* first_running(SequenceGroup* group, const PendingGrant& pending, Range sequences);
  void apply_swap_in(const PendingGrant& pending, const SwapInCandidate& candidate, AllocStatus status,
                     SequenceGroup& group);
  void apply_running(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building);
  void apply_swapped(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building);
  void apply_waiting(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building, TimeUs now);

  // results
  SequenceGroup* finish_row(const WorkRef& work);
  void fail_row(const WorkRef& work, const Error& error);
  void accept(const WorkRef& work, const RowResult& row, const StepResult& result);
  void report_prompt_logprobs(SequenceGroup& group, std::span<const TokenReport> reports);

  // how groups stop
  void preempt(SequenceGroup& group, Sequence& sequence, SequenceState to);
  void interrupted(const SequenceGroup& group, Interruption what);
  void restart(SequenceGroup& group);
  void restart_readers(StepId first_failed);
  void forget_samples(SequenceGroup& group) const;
  void find_culprit(const Quarantine::Crash& crash);
  void end_passed_trial();
  void end_group(SequenceGroup& group, std::optional<Error> error);
  /// Ends the sequences that have outgrown the pool and await no result. The group may end with them.
  void cut_outgrown(SequenceGroup& group);
  void erase_group(SequenceGroup& group);

  // operations of strategies on their groups
  Sequence fork_of(const Sequence& parent, const SequenceGroup& group) override {
    return table_.fork_of(parent, group);
  }
  void mark_dirty(const Sequence& sequence) override;
  void drop(Sequence& sequence) override;
  void finish(SequenceGroup& group, Sequence& sequence) override;
  void emit(SequenceOutput&& output) override { outputs_.outputs.push_back(std::move(output)); }
  void count_generated(std::int64_t num_tokens) override { stats_.generation_tokens_total += num_tokens; }

  SchedulerConfig config_;
  GroupTable table_;
  BatchPlanner batch_planner_;
  std::vector<InFlightStep> in_flight_;
  StepId last_completed_step_ = 0;
  StepOutputs outputs_;
  EngineStats stats_;
  metrics::StepMetrics metrics_;
  MaskManager masks_;
  // For the metrics.
  TimeUs last_request_us_ = 0;  ///< time of the last MemoryRequest
  /// Time of the last MemoryRequest before a worker was lost with steps in flight; set until another step ends.
  std::optional<TimeUs> lost_at_us_;
};

}  // namespace pagoda::scheduling
