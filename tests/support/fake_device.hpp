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

/// Stands for the KV of one token: names the token, its position and every token before it.
using Mark = std::uint64_t;

/// The marks of a token list. `salt` and `adapter` tell apart what the prefix cache must not share.
Mark root_mark(std::string_view salt, std::uint64_t adapter);
Mark next_mark(Mark previous, TokenId token);

/// A row of a step: the sequence must find marks[0, num_computed_tokens) in its blocks and writes the rest.
struct FakeRow {
  SequenceId sequence = 0;
  std::int32_t num_computed_tokens = 0;
  std::vector<Mark> marks;
  bool fails = false;  ///< the step computes garbage for it
  bool awaits =
      false;           ///< it counts on what steps before it compute: should one fail, it reads garbage, and is told so
  bool fresh = false;  ///< it starts anew: that it failed before is over
};

/// When the device runs what it is allowed to run.
enum class Timing : std::uint8_t {
  operations_first,  ///< each cache operation as early as its stamp allows, steps as late as possible
  steps_first,       ///< steps as early as possible, each cache operation only when a step needs it
  random,
};

/// A device and its cache engine that hold marks instead of KV. Steps run in order on one stream, cache operations in
/// order on another; between the two there is only what the contract grants: an operation waits for its stamped step, a
/// step for the operations of its plan. Within that the order is adversarial, so a stamp that is too low, a wrong copy,
/// swap or reuse makes some row read marks that are not its own.
class FakeDevice {
 public:
  FakeDevice(const memory::BlockSpaceConfig& config, Timing timing, std::uint64_t seed);

  /// Enqueues a planned step, and each of its cache operations to run as early as its own stamp allows. Rows of
  /// sequences that are unknown need their whole table in the plan.
  void submit(const memory::GrantedStep& planned, std::vector<FakeRow> rows);
  /// The two streams by themselves: a plan's operations behind the end of step `after`, a step behind all operations of
  /// plans up to `last_plan`.
  void enqueue_plan(const CachePlan& plan, StepId after);
  void enqueue_step(const MemoryGrant& plan, StepId last_plan, std::vector<FakeRow> rows);
  /// The row of a sequence is gone: it finished, or was preempted.
  void drop(SequenceId sequence) { tables_.erase(sequence); }
  /// What has failed will be computed anew, by a worker without rows.
  void forget_failures() { failed_.clear(); }
  /// What the sequence computed in the step is garbage, as the step failed or it read what a failed one has left.
  bool has_failed(SequenceId sequence, StepId step) const {
    const auto found = failed_.find(sequence);
    return found != failed_.end() && found->second <= step;
  }
  /// Lets time pass: runs some of what may run.
  void advance();
  /// Runs everything up to the end of `step`.
  void complete(StepId step);
  /// Runs everything that was enqueued.
  void synchronize();
  /// Both pools hold nothing that means anything, and nobody has a table. Call when nothing is enqueued.
  void lose_memory();

  /// Rows that read what a failed step had left, as they had to expect.
  std::int64_t num_misled() const { return num_misled_; }

  /// The first thing that went wrong.
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
    std::vector<BlockId> table;
  };
  struct Step {
    StepId step = 0;
    StepId last_plan = 0;
    std::vector<Row> rows;
  };
  using Pool = std::vector<std::vector<Mark>>;

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
  /// True when the row turns out to have read garbage that it must expect.
  bool verify(const Row& row, StepId step);
  Mark& slot(const Row& row, std::int32_t position);

  memory::BlockSpaceConfig config_;
  KvGroup kv_;
  Timing timing_;
  std::mt19937_64 random_;
  Pool device_;
  Pool host_;
  std::unordered_map<SequenceId, std::vector<BlockId>> tables_;  ///< as the workers' rows have them
  /// The first step in which each wrote garbage; whatever else they do in flight is not looked at.
  std::unordered_map<SequenceId, StepId> failed_;
  std::deque<Operation> operations_;
  std::deque<Step> steps_;
  StepId last_run_ = 0;
  std::int64_t num_misled_ = 0;
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
