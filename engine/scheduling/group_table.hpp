#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/scheduling/output_history.hpp"
#include "engine/scheduling/quarantine.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Events since the last MemoryRequest that the next one reports to the block manager.
struct PendingUpdates {
  std::vector<SequenceId> to_report;  ///< running sequences with new tokens, or with more computed tokens
  std::vector<SampledToken> sampled;
  std::vector<SequenceProgress> progress;
  std::vector<Fork> forks;
  std::vector<SequenceId> releases;
  StepId first_failed_step = 0;
  bool device_memory_lost = false;
  bool reset_prefix_cache = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.to_report, self.sampled, self.progress, self.forks, self.releases, self.first_failed_step,
                 self.device_memory_lost, self.reset_prefix_cache);
  }

  /// Returns whether the updates must be sent even when nothing can run.
  bool must_be_sent() const { return !releases.empty() || reset_prefix_cache; }

  /// Records that the steps from `first` on did not compute their tokens.
  void steps_failed(StepId first);
};

/// The state of every group and sequence: its queue, its batch row, and the updates that the block manager has not
/// received yet. Other classes make plans and apply results (BatchPlanner, SchedulerCore).
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
  std::vector<RowId> rows_gone;  ///< rows to send with the next ExecuteStep
  PendingUpdates pending_updates;
  SequenceId next_sequence = 1;
  Quarantine quarantine;
  OutputHistory history;  ///< outputs of sequences that have finished

  SequenceGroup* find(RequestId id) const;
  static Sequence* find(SequenceGroup* group, SequenceId id);
  /// Returns the group that runs alone; null if there is none.
  SequenceGroup* solo_group() const {
    const auto id = quarantine.solo_request();
    return id ? find(*id) : nullptr;
  }
  /// Returns the first group, in serving order, of those that wait and may run.
  std::optional<RequestId> head_of_queue() const;
  std::int32_t num_free_rows() const { return max_rows - rows_reserved; }

  /// Adds a group. A group without sequences gets one that waits.
  void add(std::unique_ptr<SequenceGroup> group);
  /// Removes a group whose sequences have all finished, or were dropped.
  void erase(SequenceGroup& group);
  /// Puts the group into the queues of its sequences' states, and removes it from the others. A group without a running
  /// sequence keeps no rows.
  void enqueue(SequenceGroup& group);

  void reserve_rows(SequenceGroup& group, std::int32_t count);
  /// Takes a row for a sequence. Its group must have reserved the row.
  void take_row(Sequence& sequence);

  /// See GroupEffects::fork_of.
  Sequence fork_of(const Sequence& parent, const SequenceGroup& group);
  /// Finishes the sequence: gives back its row and its blocks.
  void release(Sequence& sequence);
  /// Releases the sequence. The object stays in the group until replace_finished().
  void finish(SequenceGroup& group, Sequence& sequence);
  /// Removes finished independent sequences, and adds waiting ones that have not begun. A group keeps no more sequences
  /// than there are rows, however many samples its request wants.
  void replace_finished(SequenceGroup& group);
  /// Records that the block manager has moved the KV of a sequence to the host (`to` = swapped), or dropped it
  /// (waiting). If sequences are not independent, this holds for the whole group.
  void preempt(SequenceGroup& group, Sequence& sequence, SequenceState to);
  /// Call when the block manager has preempted an independent sequence before it received its latest forks: the
  /// children have no KV and wait. The sequence itself, or the group (null), may have ended meanwhile.
  void drop_unreported_forks(SequenceGroup* group, SequenceId parent);
  /// Drops the KV of a sequence, or of the whole group if sequences are not independent, and reports this to the block
  /// manager.
  void recompute(SequenceGroup& group, Sequence& sequence);
  /// Drops the KV of all sequences of the group, and reports this to the block manager.
  void recompute(SequenceGroup& group);

  /// Moves the pending_updates into the plan.
  void move_updates_into(MemoryRequest& plan);

  /// Checks that each live sequence is in one state and its group in that state's queue, that each row is used once,
  /// and that counters agree. Returns the first broken invariant, or nothing.
  std::optional<std::string> check_invariants(std::int32_t pipeline_depth) const;

  void save(Encoder& out) const;
  /// Restores a saved state. The table must be new. Returns false if the bytes are no table, or one that cannot
  /// continue.
  bool load(Decoder& in, const SchedulerConfig& config);

 private:
  /// The state that belongs to no single group. Queues, reserved rows and owners of sequences follow from the groups.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.free_rows, self.rows_gone, self.pending_updates, self.next_sequence, self.quarantine);
  }

  void give_row_back(Sequence& sequence);
  void preempt_one(SequenceGroup& group, Sequence& sequence, SequenceState to);
  void notify_lost_kv(SequenceGroup& group);
  bool load_group(Decoder& in, const SchedulerConfig& config);
  bool is_valid(const SequenceGroup& group) const;
  /// Puts the loaded groups into the queues of their states.
  bool load_queues(Decoder& in);
};

}  // namespace pagoda::scheduling
