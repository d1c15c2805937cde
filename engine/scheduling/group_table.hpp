#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/scheduling/quarantine.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// What the next MemoryRequest tells the block manager of what has happened since the last one.
struct PendingUpdates {
  std::vector<SequenceId> to_report;  ///< sequences that run and have new tokens, or more that are computed
  std::vector<SampledToken> sampled;
  std::vector<SequenceProgress> progress;
  std::vector<Fork> forks;
  std::vector<SequenceId> releases;
  StepId first_failed_step = 0;
  bool device_memory_lost = false;
  bool forget_prefixes = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.to_report, self.sampled, self.progress, self.forks, self.releases, self.first_failed_step,
                 self.device_memory_lost, self.forget_prefixes);
  }

  /// Whether there is something that the block manager hears of although nothing can run.
  bool must_be_sent() const { return !releases.empty() || forget_prefixes; }

  /// What the steps from `first` on were to compute is not there.
  void steps_failed(StepId first);
};

/// Where every group and sequence stands: its queue, its batch row, and what the block manager is still to hear of it.
/// What is asked for and what results mean is for others (BatchPlanner, SchedulerCore).
struct GroupTable {
  explicit GroupTable(const SchedulerConfig& config);

  std::unordered_map<RequestId, std::unique_ptr<SequenceGroup>> groups;
  std::unordered_map<SequenceId, RequestId> group_of;
  std::unique_ptr<WaitingQueue> waiting;
  std::vector<SequenceGroup*> running;  ///< groups with a running sequence, in serving order
  std::vector<SequenceGroup*> swapped;  ///< groups with a swapped sequence, in serving order
  std::int32_t max_rows = 0;
  std::int32_t rows_reserved = 0;
  std::vector<RowId> free_rows;
  std::vector<RowId> rows_gone;  ///< to be told with the next ExecuteStep
  PendingUpdates pending_updates;
  SequenceId next_sequence = 1;
  Quarantine quarantine;

  SequenceGroup* find(RequestId id) const;
  static Sequence* find(SequenceGroup* group, SequenceId id);
  /// The group that runs alone, if one does.
  SequenceGroup* alone() const {
    const auto id = quarantine.runs_alone();
    return id ? find(*id) : nullptr;
  }
  /// The group that is served first of those that wait and may run.
  std::optional<RequestId> head_of_queue() const;
  std::int32_t num_free_rows() const { return max_rows - rows_reserved; }

  /// A group whose one sequence waits.
  void add(std::unique_ptr<SequenceGroup> group);
  /// Of a group whose sequences have all finished, or were dropped.
  void erase(SequenceGroup& group);
  /// Puts the group into the queues that its sequences' states ask for, and only into those. A group of which nothing
  /// runs keeps no rows.
  void enqueue(SequenceGroup& group);

  void reserve_rows(SequenceGroup& group, std::int32_t count);
  /// A row for a sequence of a group that has reserved it.
  void take_row(Sequence& sequence);

  /// As GroupEffects::fork_of.
  Sequence fork_of(const Sequence& parent, const SequenceGroup& group);
  /// The sequence runs no more: gives back its row and its blocks.
  void release(Sequence& sequence);
  /// It is let go and stays one of the group's until replace_finished().
  void finish(SequenceGroup& group, Sequence& sequence);
  /// Independent sequences that have finished are gone, and in their place others begin: a group keeps no more than may
  /// run, however many samples its request wants.
  void replace_finished(SequenceGroup& group);
  /// Moves the KV of a sequence to the host (`to` = swapped), or forgets it (waiting), as the block manager has done;
  /// where sequences are not independent, that of the whole group.
  void preempt(SequenceGroup& group, Sequence& sequence, SequenceState to);
  /// The block manager has preempted an independent sequence before it heard of these forks: the children have no KV
  /// and wait. The sequence itself, or the group (null), may have ended meanwhile.
  void drop_unreported_forks(SequenceGroup* group, SequenceId parent);
  /// Forgets the KV of a sequence, or of the whole group where sequences are not independent, and has the block manager
  /// do so.
  void recompute(SequenceGroup& group, Sequence& sequence);
  /// Likewise of all sequences of the group.
  void recompute(SequenceGroup& group);

  /// Moves the pending_updates into the plan.
  void move_updates_into(MemoryRequest& plan);

  /// Each live sequence is in one state and its group in that state's queue, rows are used once, counters agree. The
  /// first broken one, or nothing.
  std::optional<std::string> check_invariants(std::int32_t pipeline_depth) const;

  void save(Encoder& out) const;
  /// Of a new table. False when the bytes are no table, or one that nothing can go on with.
  bool load(Decoder& in, const SchedulerConfig& config);

 private:
  /// What is not of one group. Queues, rows that are reserved and owners of sequences follow from the groups.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.free_rows, self.rows_gone, self.pending_updates, self.next_sequence, self.quarantine);
  }

  void give_row_back(Sequence& sequence);
  void preempt_one(SequenceGroup& group, Sequence& sequence, SequenceState to);
  void notify_lost_kv(SequenceGroup& group);
  bool load_group(Decoder& in, const SchedulerConfig& config);
  bool is_sound(const SequenceGroup& group) const;
  /// Lists those that were loaded in the queues of their states.
  bool load_queues(Decoder& in);
};

}  // namespace pagoda::scheduling
