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

/// What running a journal's steps on a model has shown.
struct ExecutionReport {
  std::int64_t num_steps = 0;
  StepId first_step = 0;
  StepId last_step = 0;
  std::int64_t num_tokens = 0;           ///< sampled ones that were compared
  std::int64_t num_different = 0;        ///< of them
  double max_logprob_difference = 0;     ///< of equal tokens
  std::int64_t num_computed_before = 0;  ///< tokens whose KV was made before the first step, for it was not recorded
  std::int32_t num_unknown_blocks = 0;   ///< cached blocks that could not be made: who reads them may differ
  std::vector<std::string> differences;  ///< the first of them, in words
};

/// Runs the steps and moves of a journal on a model, one after the other, and compares what they sample with what was
/// recorded. A journal that begins in the middle of things is first brought to where it begins: the KV that its
/// sequences and its prefix cache hold is computed anew from their tokens.
class StepExecution {
 public:
  /// `config`: the engine's, of this machine; `blocks` and `scheduler`: those that were recorded. `content`: of the
  /// memory where the journal begins. Errors: as Engine::create, and bad_config when the model's KV has another layout.
  static Result<std::unique_ptr<StepExecution>> create(EngineConfig config, const memory::BlockSpaceConfig& blocks,
                                                       const scheduling::SchedulerConfig& scheduler,
                                                       memory::KvContent content, const StartProgress& progress);
  ~StepExecution();

  /// The scheduler where the journal begins. Before anything else.
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
  void run_what_waits();
  void restore();
  bool may_run(const std::variant<CachePlan, ExecuteStep>& event) const;
  void run(const CachePlan& plan);
  void run(ExecuteStep step);
  StepResult execute(const ExecuteStep& step);
  /// Computes the first tokens of a row into blocks; where there is none, into blocks that nobody uses.
  void compute(const NewRow& row, std::vector<BlockId> blocks, std::int32_t num_tokens);
  void compare(const StepResult& recorded, const StepResult& own);

  actors::DeviceFactory factory_;
  actors::WorkerParts worker_;
  actors::CacheParts cache_;
  std::int32_t block_size_ = 0;
  std::int32_t num_blocks_ = 0;  ///< that were recorded
  std::int32_t num_spare_ = 0;   ///< behind them: for KV that has no block of its own, see compute()
  std::int32_t tokens_per_step_ = 0;
  std::set<RowId> rows_;    ///< that the worker knows
  std::set<BlockId> made_;  ///< while the KV of before is computed: what holds it already

  // until what was in flight at the beginning has ended
  bool has_begun_ = false;
  StepId last_before_ = 0;  ///< the last step that ran before
  memory::KvContent content_;
  std::map<SequenceId, NewRow> sequences_;
  std::map<SequenceId, TokenIds> forced_;  ///< of them, what follows the first sample that is still to come
  std::deque<std::variant<CachePlan, ExecuteStep>> waiting_;
  std::map<StepId, StepMasks> masks_;  ///< of steps that wait

  std::map<StepId, StepResult> results_;  ///< to be compared
  ExecutionReport report_;
};

}  // namespace pagoda
