#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/engine_actors.hpp"
#include "engine/config.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// Result of running the steps of a journal on a model.
struct ExecutionReport {
  std::int64_t num_steps = 0;
  StepId first_step = 0;
  StepId last_step = 0;
  std::int64_t num_tokens = 0;        ///< number of sampled tokens that were compared
  std::int64_t num_different = 0;     ///< number of these tokens that differ
  double max_logprob_difference = 0;  ///< largest difference between equal tokens
  /// Number of tokens whose KV was computed before the first step, because it was not recorded.
  std::int64_t num_computed_before = 0;
  /// Number of cached blocks that could not be computed; rows that read them may differ.
  std::int32_t num_unknown_blocks = 0;
  std::vector<std::string> differences;  ///< descriptions of the first differences
};

/// Runs the steps and moves of a journal on a model, one after the other, and compares the sampled tokens with the
/// recorded ones. For a journal that begins in the middle, first computes the KV that sequences and prefix cache hold
/// at its beginning, from their tokens.
class StepExecution {
 public:
  /// `config`: the engine's, for this machine. `blocks` and `scheduler`: as recorded. `content`: of the memory at the
  /// beginning of the journal. Errors: as Engine::create, and bad_config if the model's KV has another layout.
  static Result<std::unique_ptr<StepExecution>> create(EngineConfig config, const memory::BlockSpaceConfig& blocks,
                                                       const scheduling::SchedulerConfig& scheduler,
                                                       memory::KvContent content, const StartProgress& progress);
  ~StepExecution();

  /// Takes the scheduler's state at the beginning of the journal. Call before anything else.
  void begin(const scheduling::SchedulerCore& scheduler);

  void cache_plan(const CachePlan& plan) { enter(plan); }
  void step(const ExecuteStep& step) { enter(step); }
  void masks(const StepMasks& masks);
  void result(const StepResult& recorded);
  /// Errors: as create.
  Status device_replaced();

  const ExecutionReport& report() const { return report_; }

 private:
  explicit StepExecution(actors::DeviceFactory factory) : factory_(std::move(factory)) {}
  Status make_worker();
  void enter(std::variant<CachePlan, ExecuteStep> event);
  void run_pending();
  void restore();
  bool may_run(const std::variant<CachePlan, ExecuteStep>& event) const;
  void run(const CachePlan& plan);
  void run(ExecuteStep step);
  StepResult execute(const ExecuteStep& step);
  /// Returns the spare block for the entry `index` of a table.
  BlockId spare_block(std::size_t kv_group, std::size_t index) const;
  /// Computes the first tokens of a row into `blocks`, its tables by KV group. Entries below 0 are replaced with spare
  /// blocks.
  void compute(const NewRow& row, std::vector<std::vector<BlockId>> blocks, std::int32_t num_tokens);
  void compare(const StepResult& recorded, const StepResult& own);

  actors::DeviceFactory factory_;
  actors::WorkerParts worker_;
  actors::CacheParts cache_;
  KvLayout layout_;
  std::int32_t num_blocks_ = 0;  ///< number of device blocks in the journal
  /// Number of spare blocks of each KV group behind them, for KV without a block of its own; see compute().
  std::int32_t num_spare_ = 0;
  std::int32_t tokens_per_step_ = 0;
  bool has_draft_head_ = false;
  std::set<RowId> rows_;               ///< rows that the worker knows
  std::set<BlockId> computed_blocks_;  ///< blocks that are computed already, while restore() runs

  // The following fields are used until the steps that were in flight at the beginning have ended.
  bool has_begun_ = false;
  StepId last_before_ = 0;  ///< last step that was in flight at the beginning
  memory::KvContent content_;
  std::map<SequenceId, NewRow> sequences_;
  /// Tokens that follow the next recorded sample of each of these sequences.
  std::map<SequenceId, TokenIds> forced_;
  std::deque<std::variant<CachePlan, ExecuteStep>> waiting_;
  std::map<StepId, StepMasks> masks_;  ///< masks of steps that wait

  std::map<StepId, StepResult> results_;  ///< results that are still to be compared
  ExecutionReport report_;
};

}  // namespace pagoda
