#include "engine/scheduling/step_builder.hpp"

#include <algorithm>
#include <utility>

#include "engine/sampling/row_sampling.hpp"

namespace pagoda::scheduling {

StepBuilder::StepBuilder(const MemoryGrant& grant, const SchedulerConfig& config, GroupTable& table)
    : config_(config), table_(table) {
  step.step = in_flight.step = grant.step;
  step.wait_for_cache = grant.has_cache_plan;
  const std::size_t num_candidates = grant.running.size() + grant.swapped.size() + grant.waiting.size();
  step.work.reserve(num_candidates);
  in_flight.work.reserve(num_candidates);
}

void StepBuilder::run(SequenceGroup& group, Sequence& sequence, std::int32_t num_tokens) {
  const std::int32_t max_draft_inputs = std::exchange(sequence.max_draft_inputs, 0);
  if (num_tokens == 0) return;
  // Drafts for which no tokens were granted are dropped; other drafts may have been dropped since the plan.
  const std::int32_t num_left = group.length(sequence) - sequence.num_scheduled_tokens;
  sequence.ahead.drop_drafts(num_left - num_tokens);
  num_tokens = std::min(num_tokens, num_left);
  if (num_tokens == 0) return;
  if (sequence.row < 0) {
    table_.take_row(sequence);
    step.new_rows.push_back(
        {sequence.row, sequence.id, sequence.index, row_spec(group, config_.eos_token_ids), sequence.output});
    sequence.num_row_tokens = sequence.output.size();
  }
  RowWork work{sequence.row, sequence.id, sequence.num_scheduled_tokens, num_tokens, 0, 0, 0};
  sequence.num_scheduled_tokens += num_tokens;
  sequence.last_step = step.step;
  send_tokens(sequence, group.prompt_len());
  if (sequence.num_scheduled_tokens == group.length(sequence)) {
    work.num_samples = group.decoding->num_samples_at_end(group);
    work.has_mask = work.num_samples > 0 && group.wants_mask(sequence);
    work.num_drafts = static_cast<std::int32_t>(sequence.ahead.drafts.size());
    sequence.waits |= work.num_drafts > 0;
    step.wait_for_masks |= work.has_mask;
    sequence.num_placeholders += work.num_samples > 0 ? 1 : 0;
    // With stages only the last one has the sample. It is sent when it runs.
    const bool row_has_sample = work.num_samples > 0 && !group.decoding->chooses_tokens() && !config_.has_stages();
    sequence.num_row_tokens += row_has_sample ? 1 : 0;
  }
  add_draft_inputs(sequence, max_draft_inputs, work);
  // The token at position p determines the log-probability of the token at p + 1.
  const std::int32_t end_prompt_logprob = std::min(sequence.num_scheduled_tokens + 1, group.prompt_len());
  if (group.next_prompt_logprob < end_prompt_logprob) {
    work.first_prompt_logprob = group.next_prompt_logprob;
    work.num_prompt_logprobs = end_prompt_logprob - group.next_prompt_logprob;
    group.next_prompt_logprob = end_prompt_logprob;
  }
  ++group.num_in_flight;
  const std::int32_t first_uncharged = std::max(sequence.num_charged_tokens, work.first_position);
  table_.waiting->charge(group.entry, std::max(0, sequence.num_scheduled_tokens - first_uncharged));
  sequence.num_charged_tokens = std::max(sequence.num_charged_tokens, sequence.num_scheduled_tokens);
  in_flight.work.push_back({group.entry.id, sequence.id, sequence.epoch, work.num_samples, work.num_drafts,
                            work.num_made_drafts() > 0, work.has_mask});
  in_flight.waits_for_masks |= work.has_mask;
  in_flight.num_tokens += num_tokens;
  if (num_tokens - work.num_drafts > 1) in_flight.num_prompt_tokens += num_tokens;
  step.work.push_back(work);
}

/// Adds the tokens that the draft model reads. All but the last of the drafts that it makes are read, too. A head
/// reads drafts again once they are known to be right.
void StepBuilder::add_draft_inputs(Sequence& sequence, std::int32_t max_inputs, RowWork& work) {
  const bool is_head = config_.speculation.has_draft_head();
  const std::int32_t first = sequence.num_drafted_tokens;
  const std::int32_t num_unread = work.end_position() - work.num_drafts - first;
  const bool makes_drafts = work.num_drafts > 0 && sequence.ahead.has_made_drafts();
  PAGODA_ASSERT(!makes_drafts || (num_unread > 0 && num_unread <= max_inputs), "drafts follow what was read");
  if (num_unread <= 0 || max_inputs == 0) return;
  work.first_draft_input = first;
  work.num_draft_inputs = std::min(num_unread, max_inputs);
  const std::int32_t num_runs = std::max(1, work.num_made_drafts());
  const std::int32_t num_read = work.num_draft_inputs + num_runs - 1;
  sequence.num_drafted_tokens += is_head ? work.num_draft_inputs : num_read;
  in_flight.num_draft_runs = std::max<std::int64_t>(in_flight.num_draft_runs, num_runs);
  in_flight.num_draft_inputs += num_read;
  if (work.num_draft_inputs > config_.max_catch_up()) in_flight.num_caught_up += num_read;
}

/// Adds the tokens, up to the last scheduled one, that the row has not sampled itself, on every stage.
void StepBuilder::send_tokens(Sequence& sequence, std::int32_t prompt_len) {
  const TokenIds& output = sequence.output;
  const TokensAhead& ahead = sequence.ahead;
  const std::size_t first_ahead = output.size() + static_cast<std::size_t>(sequence.num_placeholders);
  for (; prompt_len + static_cast<std::int32_t>(sequence.num_row_tokens) < sequence.num_scheduled_tokens;
       ++sequence.num_row_tokens) {
    const std::size_t next = sequence.num_row_tokens;
    TokenId token = 0;
    if (next < output.size()) {
      token = output[next];
    } else if (next >= first_ahead && next < first_ahead + ahead.size()) {
      token = ahead.at(next - first_ahead);
    } else {
      return;
    }
    if (token == kMadeDraft) continue;
    step.forced_tokens.push_back({sequence.row, prompt_len + static_cast<std::int32_t>(next), token});
  }
}

void StepBuilder::add_table_deltas(const MemoryGrant& grant) {
  for (const TableDelta& delta : grant.table_deltas) {
    const auto owner = table_.group_of.find(delta.sequence);
    if (owner == table_.group_of.end()) continue;
    const Sequence* s = table_.find(table_.find(owner->second), delta.sequence);
    if (s == nullptr || s->row < 0) continue;
    const auto first = static_cast<std::int32_t>(step.blocks.size());
    const auto begin = grant.blocks.begin() + delta.blocks.first;
    step.blocks.insert(step.blocks.end(), begin, begin + delta.blocks.count);
    step.table_deltas.push_back({s->row, delta.first_block, {first, delta.blocks.count}, delta.kv_group});
  }
}

void apply_computed(const WorkRef& work, std::int32_t num_tokens, const SequenceGroup& group, Sequence& sequence) {
  sequence.num_computed_tokens = num_tokens;
  if (work.late) {  // its last known token runs once more
    const std::int32_t num_known = group.prompt_len() + static_cast<std::int32_t>(sequence.output.size());
    sequence.num_computed_tokens = std::min(num_tokens, num_known - 1);
  } else if (work.num_drafts > 0) {  // nothing is planned behind drafts
    sequence.num_scheduled_tokens = num_tokens;
  }
  sequence.num_drafted_tokens = std::min(sequence.num_drafted_tokens, sequence.num_scheduled_tokens);
}

RowSpec row_spec(const SequenceGroup& group, std::span<const TokenId> eos_token_ids) {
  RowSpec row{group.spec->prompt, row_sampling(group.spec->sampling, eos_token_ids), group.spec->seed,
              group.spec->adapter};
  row.sampling.bad_words = group.spec->bad_words;
  row.sampling.appends_samples = !group.decoding->chooses_tokens();
  return row;
}

}  // namespace pagoda::scheduling
