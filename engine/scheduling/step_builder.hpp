#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/scheduler_config.hpp"
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
  bool has_made_drafts = false;  ///< whether the draft model makes the drafts
  bool has_mask = false;
  bool late = false;     ///< whether its mask was not made in time: its samples are not used
  bool dropped = false;  ///< whether it read KV that a failed step should have computed: its result is not used

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.epoch, self.num_samples, self.num_drafts, self.has_made_drafts,
                 self.has_mask, self.late, self.dropped);
  }
};

/// A step in flight, kept until its result comes.
struct InFlightStep {
  StepId step = 0;
  std::vector<WorkRef> work;
  std::int64_t num_tokens = 0;
  std::int64_t num_prompt_tokens = 0;  ///< number of these tokens that are in chunks of prompts
  std::int64_t num_draft_runs = 0;     ///< number of runs of the draft model
  std::int64_t num_draft_inputs = 0;   ///< number of tokens that these runs read together
  std::int64_t num_caught_up = 0;      ///< number of these that are of sequences far behind (max_catch_up)
  bool waits_for_masks = false;        ///< whether its masks are not sent yet
  TimeUs planned_us = 0;               ///< when its memory was granted

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.work, self.num_tokens, self.num_prompt_tokens, self.num_draft_runs,
                 self.num_draft_inputs, self.num_caught_up, self.waits_for_masks, self.planned_us);
  }
};

/// Takes the result of a sequence's part in a step: `num_tokens` tokens of the sequence are computed now.
void apply_computed(const WorkRef& work, std::int32_t num_tokens, const SequenceGroup& group, Sequence& sequence);

/// Returns the facts about a group's request that workers need.
RowSpec row_spec(const SequenceGroup& group, std::span<const TokenId> eos_token_ids);

/// Builds the work of one step. Assigns rows to sequences, and counts the tokens that it gives them as scheduled.
class StepBuilder {
 public:
  /// `grant` is the block manager's answer for the step.
  StepBuilder(const MemoryGrant& grant, const SchedulerConfig& config, GroupTable& table);

  /// Adds the next tokens of a sequence in state running; none when `num_tokens` is 0.
  void run(SequenceGroup& group, Sequence& sequence, std::int32_t num_tokens);
  /// Adds the changed block tables of the sequences that have a row.
  void add_table_deltas(const MemoryGrant& grant);

  ExecuteStep step;
  InFlightStep in_flight;

 private:
  void send_tokens(Sequence& sequence, std::int32_t prompt_len);
  void add_draft_inputs(Sequence& sequence, std::int32_t max_inputs, RowWork& work);

  const SchedulerConfig& config_;
  GroupTable& table_;
};

}  // namespace pagoda::scheduling
