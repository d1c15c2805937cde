#include "engine/scheduling/mask_manager.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::scheduling {

std::optional<std::size_t> MaskManager::awaiting_masks() const {
  const std::size_t most = config_.has_stages() ? in_flight_.size() : std::min<std::size_t>(in_flight_.size(), 1);
  for (std::size_t i = 0; i < most; ++i) {
    if (in_flight_[i].waits_for_masks) return i;
  }
  return std::nullopt;
}

StepId MaskManager::step_awaiting_masks() const {
  const auto index = awaiting_masks();
  return index ? in_flight_[*index].step : 0;
}

MaskManager::Constrained MaskManager::find(RequestId group_id, SequenceId sequence) const {
  SequenceGroup* group = table_.find(group_id);
  Sequence* s = GroupTable::find(group, sequence);
  return s == nullptr || group->decoding->constraint() == nullptr ? Constrained() : Constrained{group, s};
}

MaskManager::Constrained MaskManager::find(SequenceId sequence) const {
  const auto owner = table_.group_of.find(sequence);
  return owner == table_.group_of.end() ? Constrained() : find(owner->second, sequence);
}

/// Returns the unfinished sequence that the work samples for; null if the sample is not needed, or is late. With
/// stages, a plan may take the memory of beams while they wait for masks: they begin anew, without this sample.
MaskManager::Constrained MaskManager::sequence_of(const WorkRef& work) const {
  if (work.num_samples == 0 || work.dropped || work.late) return {};
  const Constrained found = find(work.group, work.sequence);
  if (!found || found.sequence->state == SequenceState::finished) return {};
  const bool is_independent = found.group->decoding->has_independent_sequences();
  const bool begins_anew = config_.has_stages() && work.epoch != found.sequence->epoch && !is_independent;
  return begins_anew ? Constrained() : found;
}

/// Returns the sequence of the work if the work waits for a mask that is not made; else null.
MaskManager::Constrained MaskManager::missing_mask(const WorkRef& work) const {
  const Constrained found = work.has_mask ? sequence_of(work) : Constrained();
  return !found || found.constraint().has_mask(*found.sequence) ? Constrained() : found;
}

/// Returns the sequence if the work runs a part of its prompt, and its first sample needs a mask that is not made. All
/// tokens before this sample are known already. Else returns null.
MaskManager::Constrained MaskManager::unsampled_prompt(const WorkRef& work) const {
  if (work.num_samples > 0) return {};
  const Constrained found = find(work.group, work.sequence);
  if (!found || found.sequence->num_placeholders > 0) return {};
  Constraint& constraint = found.constraint();
  const bool lacks_mask = !constraint.has_mask(*found.sequence) && constraint.wants_mask(*found.sequence);
  return lacks_mask ? found : Constrained();
}

std::vector<SequenceId> MaskManager::missing_masks() const {
  std::vector<SequenceId> missing;
  const auto index = awaiting_masks();
  if (!index) return missing;
  for (const WorkRef& work : in_flight_[*index].work) {
    if (missing_mask(work)) missing.push_back(work.sequence);
  }
  return missing;
}

/// The next step is planned when the masks are sent. Planning takes some tenths of a millisecond, while this step runs.
/// With stages, the last one first runs the steps before this one.
TimeUs MaskManager::mask_wait_us() const {
  constexpr TimeUs kMinUs = 1'000;
  constexpr TimeUs kMaxUs = 100'000;
  constexpr TimeUs kUnknownUs = 10'000;
  const auto index = awaiting_masks();
  if (!index) return kUnknownUs;
  double wait_us = batch_planner_.step_us(in_flight_[*index].num_tokens) / 2;
  for (std::size_t before = 0; before < *index; ++before) {
    wait_us += batch_planner_.step_us(in_flight_[before].num_tokens);
  }
  return wait_us > 0 ? std::clamp(static_cast<TimeUs>(wait_us), kMinUs, kMaxUs) : kUnknownUs;
}

std::vector<MaskJob> MaskManager::take_mask_jobs() {
  std::vector<MaskJob> jobs;
  // With one step in flight, no step is planned before the sample that drafts follow is known.
  const bool may_draft = config_.pipeline_depth == 2 && batch_planner_.may_draft();
  const std::int32_t max_drafts = may_draft ? kMaxDrafts : 0;
  const auto ask = [&](const Constrained& wanted) {
    if (!wanted || !wanted.constraint().may_request_mask(*wanted.sequence)) return;
    jobs.push_back(*wanted.constraint().mask_job(*wanted.group, *wanted.sequence, max_drafts));
  };
  for (const InFlightStep& step : in_flight_) {
    if (step.step <= last_step_seen_) continue;
    last_step_seen_ = step.step;
    for (const WorkRef& work : step.work) {
      ask(unsampled_prompt(work));
      if (config_.has_stages()) ask(missing_mask(work));  // its tokens are known from the beginning
    }
  }
  const auto index = awaiting_masks();
  const StepId step = step_awaiting_masks();
  if (index && std::exchange(masks_requested_, step) != step) {
    for (const WorkRef& work : in_flight_[*index].work) ask(missing_mask(work));
  }
  // Jobs of forks come first, while their parents are still where they were forked.
  std::ranges::stable_partition(jobs, [](const MaskJob& job) { return job.begins_anew; });
  return jobs;
}

std::optional<MaskJob> MaskManager::mask_job_of(SequenceId sequence) {
  const Constrained found = find(sequence);
  return found ? found.constraint().mask_job(*found.group, *found.sequence, 0) : std::nullopt;
}

std::vector<MadeMask> MaskManager::made_masks() const {
  std::vector<MadeMask> made;
  for (const auto& [id, group] : table_.groups) {
    const Constraint* const constraint = group->decoding->constraint();
    if (constraint == nullptr) continue;
    for (const Sequence& s : group->sequences) {
      if (const MadeMask* mask = constraint->made_mask(s)) made.push_back(*mask);
    }
  }
  return made;
}

void MaskManager::masks_made(std::vector<MadeMask> made) {
  for (MadeMask& mask : made) {
    const Constrained found = find(mask.sequence);
    if (found && found.constraint().take_made(*found.sequence, std::move(mask))) batch_planner_.invalidate_plan();
  }
}

void MaskManager::masks_late(std::span<const SequenceId> sequences) {
  const auto first = awaiting_masks();
  if (!first) return;
  for (std::size_t i = *first; i < (config_.has_stages() ? in_flight_.size() : *first + 1); ++i) {
    if (!in_flight_[i].waits_for_masks) continue;
    for (WorkRef& work : in_flight_[i].work) {
      const Constrained found = sequence_of(work);
      const bool is_late = found && !found.constraint().has_mask(*found.sequence) &&
                           std::ranges::find(sequences, found.sequence->id) != sequences.end();
      if (is_late) mark_late(work, found);
    }
  }
}

/// Moves the sequence back to before the sample, and by one more token, so that this token runs again and is sampled
/// behind. At the end of a prompt, whose blocks others may share already, the sequence is admitted again.
void MaskManager::mark_late(WorkRef& work, const Constrained& late) {
  SequenceGroup& group = *late.group;
  Sequence& sequence = *late.sequence;
  work.late = true;
  ++metrics_.late_masks;
  const std::int32_t num_known = group.prompt_len() + static_cast<std::int32_t>(sequence.output.size());
  sequence.forget_samples();
  sequence.num_row_tokens = std::min(sequence.num_row_tokens, sequence.output.size());
  sequence.awaits_mask = true;
  batch_planner_.invalidate_plan();
  const bool holds_kv = sequence.state == SequenceState::running || sequence.state == SequenceState::swapped;
  if (holds_kv && num_known <= sequence.num_admitted_tokens) {
    table_.recompute(group, sequence);  // if this replaces its output, it awaits no mask any more
    batch_planner_.on_capacity_freed();
  } else {
    sequence.num_scheduled_tokens = std::min(sequence.num_scheduled_tokens, num_known - 1);
    sequence.num_computed_tokens = std::min(sequence.num_computed_tokens, sequence.num_scheduled_tokens);
  }
}

std::optional<StepMasks> MaskManager::take_masks() {
  const auto index = awaiting_masks();
  if (!index) return std::nullopt;
  InFlightStep& step = in_flight_[*index];
  step.waits_for_masks = false;
  StepMasks masks;
  masks.step = step.step;
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    const Constrained found = step.work[i].has_mask ? sequence_of(step.work[i]) : Constrained();
    if (!found) continue;
    metrics_.forced_tokens += found.constraint().apply_mask(static_cast<std::int32_t>(i), *found.sequence, masks);
  }
  return masks;
}

}  // namespace pagoda::scheduling
