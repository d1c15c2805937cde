// Decides which masks are needed, and applies them and the tokens that follow from them. MaskJobs make the masks
// elsewhere.

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "engine/scheduling/scheduler_core.hpp"
#include "kernels/sample.hpp"

namespace pagoda::scheduling {

/// Returns the unfinished sequence that the work samples for; null if the sample is not needed, or is late.
Sequence* SchedulerCore::sequence_of(const WorkRef& work) const {
  if (work.num_samples == 0 || work.dropped || work.late) return nullptr;
  Sequence* s = GroupTable::find(table_.find(work.group), work.sequence);
  return s == nullptr || s->state == SequenceState::finished ? nullptr : s;
}

/// Returns the sequence of the work if the work waits for a mask that is not made; else null.
Sequence* SchedulerCore::missing_mask(const WorkRef& work) const {
  Sequence* s = work.has_mask ? sequence_of(work) : nullptr;
  return s == nullptr || s->has_mask() ? nullptr : s;
}

/// Returns the sequence if the work runs a part of its prompt, and its first sample needs a mask that is not made. All
/// tokens before this sample are known already. Else returns null.
Sequence* SchedulerCore::unsampled_prompt(const WorkRef& work) const {
  if (work.num_samples > 0) return nullptr;
  SequenceGroup* group = table_.find(work.group);
  Sequence* s = GroupTable::find(group, work.sequence);
  return s == nullptr || s->num_placeholders > 0 || s->has_mask() || !group->wants_mask(*s) ? nullptr : s;
}

std::vector<SequenceId> SchedulerCore::missing_masks() const {
  std::vector<SequenceId> missing;
  if (step_awaiting_masks() == 0) return missing;
  for (const WorkRef& work : in_flight_.front().work) {
    if (missing_mask(work) != nullptr) missing.push_back(work.sequence);
  }
  return missing;
}

/// The next step is planned when the masks are sent. Planning takes some tenths of a millisecond, while this step runs.
TimeUs SchedulerCore::mask_wait_us() const {
  constexpr TimeUs kMinUs = 1'000;
  constexpr TimeUs kMaxUs = 100'000;
  constexpr TimeUs kUnknownUs = 10'000;
  const double step_us = step_awaiting_masks() == 0 ? 0 : batch_planner_.step_us(in_flight_.front().num_tokens);
  return step_us > 0 ? std::clamp(static_cast<TimeUs>(step_us / 2), kMinUs, kMaxUs) : kUnknownUs;
}

std::vector<MaskJob> SchedulerCore::take_mask_jobs() {
  std::vector<MaskJob> jobs;
  const std::int32_t max_drafts = batch_planner_.may_draft() ? kMaxDrafts : 0;
  const auto ask = [&](const WorkRef& work, Sequence* s) {
    SequenceGroup* group = s == nullptr ? nullptr : table_.find(work.group);
    if (group == nullptr || !group->masks || s->requested_mask == s->output.size()) return;
    jobs.push_back(mask_job(*group, *s, std::min(s->max_drafts, max_drafts)));
  };
  for (const InFlightStep& step : in_flight_) {
    if (step.step <= last_step_seen_) continue;
    last_step_seen_ = step.step;
    for (const WorkRef& work : step.work) ask(work, unsampled_prompt(work));
  }
  const StepId step = step_awaiting_masks();
  if (step != 0 && std::exchange(masks_requested_, step) != step) {
    for (const WorkRef& work : in_flight_.front().work) ask(work, missing_mask(work));
  }
  // Jobs of forks come first, while their parents are still where they were forked.
  std::ranges::stable_partition(jobs, [](const MaskJob& job) { return job.begins_anew; });
  return jobs;
}

std::optional<MaskJob> SchedulerCore::mask_job_of(SequenceId sequence) {
  const auto owner = table_.group_of.find(sequence);
  SequenceGroup* group = owner == table_.group_of.end() ? nullptr : table_.find(owner->second);
  Sequence* s = table_.find(group, sequence);
  return s == nullptr || !group->masks ? std::nullopt : std::optional(mask_job(*group, *s, 0));
}

std::vector<MadeMask> SchedulerCore::made_masks() const {
  std::vector<MadeMask> made;
  for (const auto& [id, group] : table_.groups) {
    for (const Sequence& s : group->sequences) {
      if (s.has_mask()) made.push_back(*s.made_mask);
    }
  }
  return made;
}

MaskJob SchedulerCore::mask_job(SequenceGroup& group, Sequence& sequence, std::int32_t max_drafts) const {
  const TokenIds& output = sequence.output;
  MaskJob job;
  job.request = group.entry.id;
  job.sequence = sequence.id;
  job.course = sequence.course;
  job.parent = sequence.parent;
  job.masks = group.masks;
  // The job begins anew again as long as there are no tokens.
  job.begins_anew = sequence.num_followed == 0;
  job.num_known = sequence.num_followed;
  job.tokens.assign(output.begin() + static_cast<std::ptrdiff_t>(sequence.num_followed), output.end());
  if (sequence.waits) job.drafts = sequence.drafts;
  job.wants_jump_forward = group.forked && !group.decoding->chooses_tokens();
  job.max_drafts = max_drafts;
  job.ended = std::exchange(group.ended_sequences, {});
  sequence.num_followed = output.size();
  sequence.requested_mask = output.size();
  return job;
}

void SchedulerCore::masks_made(std::vector<MadeMask> made) {
  for (MadeMask& mask : made) {
    const auto owner = table_.group_of.find(mask.sequence);
    Sequence* s = owner == table_.group_of.end() ? nullptr : table_.find(table_.find(owner->second), mask.sequence);
    if (s == nullptr || mask.course != s->course || mask.num_tokens != s->output.size()) continue;
    s->requested_mask.reset();
    s->made_mask = std::move(mask);
    if (std::exchange(s->awaits_mask, false)) batch_planner_.invalidate_plan();
  }
}

void SchedulerCore::masks_late(std::span<const SequenceId> sequences) {
  if (step_awaiting_masks() == 0) return;
  for (WorkRef& work : in_flight_.front().work) {
    Sequence* s = sequence_of(work);
    const bool is_late = s != nullptr && !s->has_mask() && std::ranges::find(sequences, s->id) != sequences.end();
    if (is_late) mark_late(work, *table_.find(work.group), *s);
  }
}

/// Moves the sequence back to before the sample, and by one more token, so that this token runs again and is sampled
/// behind. At the end of a prompt, whose blocks others may share already, the sequence is admitted again.
void SchedulerCore::mark_late(WorkRef& work, SequenceGroup& group, Sequence& sequence) {
  work.late = true;
  ++metrics_.late_masks;
  const std::int32_t num_known = group.prompt_len() + static_cast<std::int32_t>(sequence.output.size());
  const std::int32_t course = sequence.course;
  sequence.forget_samples();
  sequence.num_row_tokens = std::min(sequence.num_row_tokens, sequence.output.size());
  const bool holds_kv = sequence.state == SequenceState::running || sequence.state == SequenceState::swapped;
  if (holds_kv && num_known <= sequence.num_admitted_tokens) {
    table_.recompute(group, sequence);
    batch_planner_.on_capacity_freed();
  } else {
    sequence.num_scheduled_tokens = std::min(sequence.num_scheduled_tokens, num_known - 1);
    sequence.num_computed_tokens = std::min(sequence.num_computed_tokens, sequence.num_scheduled_tokens);
  }
  // Otherwise it needs another mask.
  sequence.awaits_mask = sequence.course == course;
  batch_planner_.invalidate_plan();
}

std::optional<StepMasks> SchedulerCore::take_masks() {
  if (step_awaiting_masks() == 0) return std::nullopt;
  InFlightStep& step = in_flight_.front();
  step.waits_for_masks = false;
  StepMasks masks;
  masks.step = step.step;
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    Sequence* s = step.work[i].has_mask ? sequence_of(step.work[i]) : nullptr;
    if (s == nullptr || !s->has_mask()) continue;
    add_masks(i, *s, masks);
    apply_jump_forward(*s, std::exchange(s->made_mask, std::nullopt)->jump_forward);
  }
  return masks;
}

/// Adds one mask, or with drafts one mask for each position. A position that the drafts before it cannot reach allows
/// no token.
void SchedulerCore::add_masks(std::size_t place, const Sequence& sequence, StepMasks& masks) const {
  const MadeMask& made = *sequence.made_mask;
  if (made.num_masks == 0) return;
  const std::size_t num_masks = 1 + (sequence.waits ? sequence.drafts.size() : 0);
  const std::size_t num_words = num_masks * kernels::mask_words(config_.vocab_size);
  masks.work.insert(masks.work.end(), num_masks, static_cast<std::int32_t>(place));
  if (made.words.size() >= num_words) {
    masks.words.insert(masks.words.end(), made.words.begin(),
                       made.words.begin() + static_cast<std::ptrdiff_t>(num_words));
  } else {  // a replay may lack the grammar
    masks.words.resize(masks.words.size() + num_words, ~std::uint32_t{0});
  }
}

void SchedulerCore::apply_jump_forward(Sequence& sequence, const JumpForwardTokens& jump_forward) {
  if (jump_forward.tokens.empty() && !jump_forward.ends) return;
  if (sequence.num_placeholders != 1 || sequence.waits) return;
  const auto num_drafts = std::clamp<std::ptrdiff_t>(jump_forward.num_drafts, 0, std::ssize(jump_forward.tokens));
  sequence.forced.assign(jump_forward.tokens.begin(), jump_forward.tokens.end() - num_drafts);
  sequence.drafts.assign(jump_forward.tokens.end() - num_drafts, jump_forward.tokens.end());
  sequence.will_end = jump_forward.ends;
  metrics_.forced_tokens += std::ssize(sequence.forced);
}

}  // namespace pagoda::scheduling
