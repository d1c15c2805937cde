#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduling/group_table.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// One sequence's part in a step in flight.
struct WorkRef {
  RequestId group = 0;
  SequenceId sequence = 0;
  std::int32_t epoch = 0;
  std::int32_t num_samples = 0;
  std::int32_t num_drafts = 0;
  bool has_mask = false;
  bool late = false;     ///< its mask was not made in time: what it samples is not the sequence's
  bool dropped = false;  ///< it read what a failed step was to compute: the result means nothing

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.epoch, self.num_samples, self.num_drafts, self.has_mask, self.late,
                 self.dropped);
  }
};

/// What is remembered of a step until its result comes.
struct InFlightStep {
  StepId step = 0;
  std::vector<WorkRef> work;
  std::int64_t num_tokens = 0;
  std::int64_t num_prompt_tokens = 0;  ///< of them, in chunks of prompts
  bool waits_for_masks = false;        ///< they were not told yet

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.work, self.num_tokens, self.num_prompt_tokens, self.waits_for_masks);
  }
};

/// What the workers must know of a group's request.
RowSpec row_spec(const SequenceGroup& group, std::span<const TokenId> eos_token_ids);

/// Writes down what the workers run in one step. A sequence is told its row, and counts as scheduled what it is given.
class StepBuilder {
 public:
  /// `plan` is the block manager's answer for the step.
  StepBuilder(const MemoryGrant& plan, std::span<const TokenId> eos_token_ids, GroupTable& table);

  /// The next tokens of a sequence that is in state running; none when `num_tokens` is 0.
  void run(SequenceGroup& group, Sequence& sequence, std::int32_t num_tokens);
  /// What changed in the block tables of those that run.
  void add_table_deltas(const MemoryGrant& plan);

  ExecuteStep step;
  InFlightStep in_flight;

 private:
  static std::int32_t drop_drafts(const SequenceGroup& group, Sequence& sequence, std::int32_t num_granted);
  void send_tokens(Sequence& sequence, std::int32_t prompt_len);

  std::span<const TokenId> eos_token_ids_;
  GroupTable& table_;
};

}  // namespace pagoda::scheduling
