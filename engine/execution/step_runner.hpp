#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/execution/step_memory.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/result.hpp"
#include "kernels/device.hpp"

namespace pagoda::execution {

/// A step between StepRunner::issue and collect.
struct IssuedStep {
  struct Row {
    SequenceId sequence = 0;
    std::int32_t end_position = 0;
    std::int32_t num_samples = 0;
    std::int32_t num_prompt_logprobs = 0;
    bool bans_tokens = false;  ///< the request's parameters leave out some tokens
    bool has_mask = false;     ///< so does its grammar
  };

  StepId step = 0;
  TimeUs issued_us = 0;
  std::optional<Error> error;
  std::vector<Row> rows;  ///< of ExecuteStep::work
  ResultShape shape;
  std::unique_ptr<StepMemory> memory;
};

/// What a worker runs steps with.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Enqueues a step. Call inside Stream::submit, steps in their order. An op's error comes back with the result.
  virtual IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) = 0;

  /// The result of a step. Call once everything it enqueued has finished, in Stream::on_complete, while the stream's
  /// status is well: uses no device. May run while another thread issues a later step.
  virtual StepResult collect(IssuedStep issued) = 0;
};

}  // namespace pagoda::execution
