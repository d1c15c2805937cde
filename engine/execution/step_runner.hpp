#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/execution/step_inputs.hpp"
#include "engine/execution/step_memory.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/result.hpp"
#include "kernels/device.hpp"

namespace pagoda::execution {

/// A step between StepRunner::issue, sample and collect.
struct IssuedStep {
  struct Row {
    SequenceId sequence = 0;
    std::int32_t end_position = 0;
    std::int32_t num_samples = 0;
    std::int32_t num_prompt_logprobs = 0;
    bool has_mask = false;          ///< its grammar leaves out some tokens
    bool bans_tokens = false;       ///< so does min_tokens
    bool restricts_tokens = false;  ///< so do allowed_token_ids or bad_words
    TokenIds drafts = {};           ///< the last tokens that it runs, which samples are held against
  };

  StepId step = 0;
  TimeUs issued_us = 0;
  std::optional<Error> error;
  std::vector<Row> rows;  ///< of ExecuteStep::work
  StepShape inputs;
  ResultShape shape;
  std::unique_ptr<StepMemory> memory;
};

/// What a worker runs steps with.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Enqueues a step; but for its sampling where it waits for masks. Call inside Stream::submit, steps in their order.
  /// An op's error comes back with the result.
  virtual IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) = 0;

  /// Enqueues what issue has left of a step that waits for masks. Call likewise, before the next step. The masks may
  /// go when it returns.
  virtual void sample(kernels::Stream& stream, const StepMasks& masks, IssuedStep& issued) = 0;

  /// The result of a step. Call once everything it enqueued has finished, in Stream::on_complete, while the stream's
  /// status is well: uses no device. May run while another thread issues a later step.
  virtual StepResult collect(IssuedStep issued) = 0;
};

}  // namespace pagoda::execution
