#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::test {

/// Stands for the KV of one token in one KV group: identifies the token, its position, every token before it, and the
/// group.
using Mark = std::uint64_t;

/// Return the marks of a token list. `salt` and `adapter` distinguish token lists that must not share blocks in the
/// prefix cache.
Mark root_mark(std::string_view salt, std::uint64_t adapter);
Mark next_mark(Mark previous, TokenId token);

/// A row of a step: the sequence must find marks[0, num_computed_tokens) in its blocks and writes the rest.
struct FakeRow {
  SequenceId sequence = 0;
  std::int32_t num_computed_tokens = 0;
  std::vector<Mark> marks;
  bool fails = false;   ///< whether the step computes garbage for the row
  bool awaits = false;  ///< whether the row depends on earlier steps: if one of them failed, the row may read garbage
                        ///< and counts as failed too
  /// Whether the sequence starts again from its first token, so that its earlier failure no longer counts.
  bool fresh = false;
};

/// The order in which the device runs work that is ready.
enum class Timing : std::uint8_t {
  operations_first,  ///< each cache operation runs as early as its stamp allows, steps run as late as possible
  steps_first,       ///< steps run as early as possible, each cache operation only when a step needs it
  random,
};

/// A device and its cache engine that hold marks instead of KV. Steps run in order on one stream, cache operations in
/// order on another. Between the two streams only the ordering of the contract holds: an operation waits for its
/// stamped step, a step for the operations of its plan. Within these rules the order is adversarial, so if a stamp is
/// too low, or a copy, swap or reuse is wrong, some row reads marks that are not its own.
class FakeDevice {
 public:
  FakeDevice(const memory::BlockSpaceConfig& config, Timing timing, std::uint64_t seed);

  /// Enqueues a planned step and its cache operations. Each operation may run as early as its own stamp allows. For
  /// sequences that the device does not know, the plan must contain the whole table.
  void submit(const memory::GrantedStep& planned, std::vector<FakeRow> rows);
  /// Enqueue on one of the two streams alone: the operations of a plan after the end of step `after`, or a step after
  /// all operations of plans up to `last_plan`.
  void enqueue_plan(const CachePlan& plan, StepId after);
  void enqueue_step(const MemoryGrant& plan, StepId last_plan, std::vector<FakeRow> rows);
  /// Removes the row of a sequence that finished or was preempted.
  void drop(SequenceId sequence) { tables_.erase(sequence); }
  /// Forgets all failures: the failed sequences are recomputed by a worker without rows.
  void forget_failures() { failed_.clear(); }
  /// Returns whether the sequence's results of the step are garbage, because the step failed or read garbage that a
  /// failed step had left.
  bool has_failed(SequenceId sequence, StepId step) const {
    const auto found = failed_.find(sequence);
    return found != failed_.end() && found->second <= step;
  }
  /// Runs some of the work that is ready.
  void advance();
  /// Runs everything up to the end of `step`.
  void complete(StepId step);
  /// Runs everything that was enqueued.
  void synchronize();
  /// Fills both pools with garbage and removes all tables. Call when nothing is enqueued.
  void lose_memory();

  /// Returns the number of rows that read garbage of a failed step, as was to be expected.
  std::int64_t num_misled() const { return num_misled_; }

  /// Returns a digest of all work that was enqueued: equal decisions have equal digests.
  std::uint64_t digest() const { return digest_; }

  /// Returns the first error.
  const std::optional<std::string>& error() const { return error_; }

 private:
  enum class Kind : std::uint8_t { swap_out, swap_in, copy };
  struct Operation {
    StepId step = 0;
    Kind kind = Kind::copy;
    BlockMove move;
    StepId after = 0;
  };
  struct Row {
    FakeRow wanted;
    std::vector<std::vector<BlockId>> tables;  ///< by KV group
  };
  struct Step {
    StepId step = 0;
    StepId last_plan = 0;
    std::vector<Row> rows;
  };
  using Pool = std::vector<std::vector<Mark>>;

  void add_to_digest(std::int64_t value);
  void fail(std::string what);
  template <class After>
  void enqueue_operations(const CachePlan& plan, After after);
  void check_moves(const CachePlan& plan);
  void apply_delta(const TableDelta& delta, const MemoryGrant& plan);
  bool may_run_operation() const;
  bool may_run_step() const;
  void run_operation();
  void run_step();
  void write(const Row& row, StepId step);
  /// Returns whether the row has read garbage that it had to expect.
  bool verify(const Row& row, StepId step);
  bool verify(const Row& row, StepId step, KvGroupId kv_group);
  Mark& slot(const Row& row, KvGroupId kv_group, std::int32_t position);

  memory::BlockSpaceConfig config_;
  KvLayout layout_;
  Timing timing_;
  std::mt19937_64 random_;
  Pool device_;
  Pool host_;
  /// Block tables of the workers' rows, by KV group.
  std::unordered_map<SequenceId, std::vector<std::vector<BlockId>>> tables_;
  /// The first step in which each sequence wrote garbage; the rest of its work in flight is not checked.
  std::unordered_map<SequenceId, StepId> failed_;
  std::deque<Operation> operations_;
  std::deque<Step> steps_;
  StepId last_run_ = 0;
  std::int64_t num_misled_ = 0;
  std::uint64_t digest_ = 0;
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
