#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/adapters/adapter_table.hpp"
#include "engine/execution/step_inputs.hpp"
#include "engine/execution/step_memory.hpp"
#include "engine/layers/batch_adapters.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/result.hpp"
#include "kernels/device.hpp"

namespace pagoda::execution {

/// A step between StepRunner::issue and StepRunner::collect.
struct IssuedStep {
  struct Row {
    SequenceId sequence = 0;
    std::int32_t end_position = 0;
    std::int32_t num_samples = 0;
    std::int32_t num_prompt_logprobs = 0;
    bool has_mask = false;          ///< whether a mask restricts its tokens
    bool bans_tokens = false;       ///< whether min_tokens bans some tokens
    bool restricts_tokens = false;  ///< whether allowed_token_ids or bad_words restrict its tokens
    std::int32_t num_drafts = 0;
    std::int32_t num_made_drafts = 0;  ///< see RowWork
    TokenIds drafts = {};  ///< compared with its samples; those of the draft model are known when the step has run
    std::optional<Error> error = {};  ///< reason why its results are not used
  };

  StepId step = 0;
  TimeUs issued_us = 0;
  std::optional<Error> error;
  std::vector<Row> rows;  ///< one for each ExecuteStep::work
  StepShape inputs;
  ResultShape shape;
  std::unique_ptr<StepMemory> memory;
  std::vector<adapters::SharedAdapter> adapters;  ///< adapters of its rows: they live until the step has run
  layers::BatchAdapters report_adapters;          ///< adapters of the rows that report on prompt tokens
};

/// Runs the steps of a worker.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Enqueues a step, without its sampling if it waits for masks. Call inside Stream::submit, steps in their order. The
  /// error of an op comes back with the result.
  virtual IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) = 0;

  /// Returns whether it samples: of the stages of a model, only the last one does. Any thread.
  virtual bool samples() const { return true; }

  /// Enqueues the sampling of a step that waits for masks. Call inside Stream::submit, before the next step. The masks
  /// need not outlive the call.
  virtual void sample(kernels::Stream& stream, const StepMasks& masks, IssuedStep& issued) = 0;

  /// Returns the result of a step. Call in Stream::on_complete, when everything that the step enqueued has finished,
  /// and only while the stream's status is well. Uses no device. May run while another thread issues a later step.
  virtual StepResult collect(IssuedStep issued) = 0;

  /// Ends the waits of this runner and of the other ranks of its group for each other: their steps fail. Call when no
  /// more steps come. Any thread.
  virtual void leave_ranks() {}
};

}  // namespace pagoda::execution
