// Applies the block manager's answer: which sequences run, which were preempted, which cannot be served.

#include <algorithm>
#include <utility>

#include "engine/scheduling/scheduler_core.hpp"
#include "kernels/result.hpp"

namespace pagoda::scheduling {

std::optional<ExecuteStep> SchedulerCore::on_memory_grant(const MemoryGrant& grant, TimeUs now) {
  PAGODA_ASSERT(batch_planner_.pending() && batch_planner_.pending()->step == grant.step,
                "a MemoryGrant answers the one outstanding MemoryRequest");
  metrics_.plan_seconds.observe(static_cast<double>(now - last_request_us_) / 1e6);
  const PendingGrant pending = batch_planner_.take_pending();
  PAGODA_ASSERT(grant.running.size() == pending.running.size() && grant.swapped.size() == pending.swapped.size() &&
                    grant.waiting.size() == pending.waiting.size(),
                "a MemoryGrant answers every candidate");
  stats_.device_blocks_total = grant.memory.device_blocks_total;
  stats_.device_blocks_free = grant.memory.device_blocks_free;
  stats_.device_blocks_cached = grant.memory.device_blocks_cached;
  stats_.host_blocks_total = grant.memory.host_blocks_total;
  stats_.host_blocks_free = grant.memory.host_blocks_free;
  stats_.allocated_slots = grant.memory.allocated_slots;
  stats_.used_slots = grant.memory.used_slots;
  stats_.prefix_cache_queries_total = grant.memory.prefix_cache_queries;
  stats_.prefix_cache_hits_total = grant.memory.prefix_cache_hits;

  if (pending.discarded) {
    for (const WaitingRef& ref : pending.waiting) table_.pending_updates.releases.push_back(ref.sequence);
    batch_planner_.invalidate_plan();
    if (!grant.has_cache_plan || pending.memory_lost) return std::nullopt;
  }
  StepBuilder building(grant, config_, table_);
  bool anything_scheduled = grant.has_cache_plan;
  if (!pending.discarded) {
    for (std::size_t i = 0; i < grant.running.size(); ++i) {
      // With stages, candidates that only wait for their samples would fill every free place in the pipeline.
      const Range sequences = pending.running[i].sequences;
      const bool runs = config_.has_stages() ? pending.num_tokens(sequences) > 0 : sequences.count > 0;
      anything_scheduled |= runs && grant.running[i] == RunningOutcome::scheduled;
    }
    for (const AllocStatus status : grant.swapped) anything_scheduled |= status == AllocStatus::ok;
    for (const AdmissionOutcome& outcome : grant.waiting) anything_scheduled |= outcome.status == AllocStatus::ok;
    apply_running(pending, grant, building);
    apply_swapped(pending, grant, building);
    apply_waiting(pending, grant, building, now);
    building.add_table_deltas(grant);
  }
  // A worker keeps the adapter of a row until it knows that the row is gone.
  anything_scheduled |= config_.max_adapters > 0 && !pending.discarded && !table_.rows_gone.empty();
  batch_planner_.on_applied(pending, anything_scheduled);
  // A step whose sequences have all ended meanwhile still runs, empty, because its blocks are stamped with it.
  if (anything_scheduled) {
    building.step.rows_gone = std::exchange(table_.rows_gone, {});
    building.in_flight.planned_us = now;
    in_flight_.push_back(std::move(building.in_flight));
  }
  end_passed_trial();
  return anything_scheduled ? std::optional(std::move(building.step)) : std::nullopt;
}

/// Runs the rows of a group that is served. A sequence that has ended meanwhile is left out. If others rely on the
/// blocks that it should have computed, the step counts as failed for them: readers come behind the sequence in every
/// plan.
void SchedulerCore::run_rows(const PendingGrant& pending, RequestId id, Range rows, StepBuilder& building) {
  SequenceGroup* group = table_.find(id);
  for (std::int32_t i = rows.first; i < rows.first + rows.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const SequenceNeed& need = pending.needs[index];
    Sequence* s = table_.find(group, need.sequence);
    if (s != nullptr && s->state == SequenceState::running) {
      building.run(*group, *s, need.num_new_tokens);
    } else if (pending.shares[index]) {
      table_.pending_updates.steps_failed(pending.step);
    }
  }
}

/// Returns the sequence that represents a candidate; null if none of the candidate runs any more.
Sequence* SchedulerCore::first_running(SequenceGroup* group, const PendingGrant& pending, Range sequences) {
  if (group == nullptr) return nullptr;
  // Beams may have forked or been dropped since the plan was made.
  if (!group->decoding->has_independent_sequences()) {
    return group->any(SequenceState::running) ? &group->sequences.front() : nullptr;
  }
  Sequence* s = table_.find(group, pending.needs[static_cast<std::size_t>(sequences.first)].sequence);
  return s != nullptr && s->state == SequenceState::running ? s : nullptr;
}

void SchedulerCore::apply_running(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building) {
  for (std::size_t i = 0; i < pending.running.size(); ++i) {
    const RunningCandidate& candidate = pending.running[i];
    if (grant.running[i] == RunningOutcome::scheduled) {
      run_rows(pending, candidate.group, candidate.sequences, building);
      continue;
    }
    if (grant.running[i] == RunningOutcome::skipped) continue;
    SequenceGroup* group = table_.find(candidate.group);
    Sequence* s = first_running(group, pending, candidate.sequences);
    if (s == nullptr) {
      if (group != nullptr && !group->decoding->has_independent_sequences()) continue;
      const auto first = static_cast<std::size_t>(candidate.sequences.first);
      table_.drop_unreported_forks(group, pending.needs[first].sequence);
      batch_planner_.on_capacity_freed();
      continue;
    }
    if (grant.running[i] == RunningOutcome::preempted_recompute) {
      preempt(*group, *s, SequenceState::waiting);
    } else if (grant.running[i] == RunningOutcome::preempted_swap) {
      preempt(*group, *s, SequenceState::swapped);
    } else {
      table_.preempt(*group, *s, SequenceState::waiting);
      batch_planner_.on_capacity_freed();
      outgrew(*group, *s);
    }
  }
}

void SchedulerCore::apply_swapped(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building) {
  for (std::size_t i = 0; i < pending.swapped.size(); ++i) {
    const SwapInCandidate& candidate = pending.swapped[i];
    SequenceGroup* group = table_.find(candidate.group);
    if (grant.swapped[i] != AllocStatus::later && group != nullptr) {
      apply_swap_in(pending, candidate, grant.swapped[i], *group);
    }
    if (grant.swapped[i] == AllocStatus::ok) run_rows(pending, candidate.group, candidate.sequences, building);
  }
}

/// Marks swapped sequences of a group as running again, or as to be recomputed if they cannot be swapped in.
void SchedulerCore::apply_swap_in(const PendingGrant& pending, const SwapInCandidate& candidate, AllocStatus status,
                                  SequenceGroup& group) {
  std::int32_t num_back = 0;
  for (std::int32_t i = 0; i < candidate.sequences.count; ++i) {
    const auto index = static_cast<std::size_t>(candidate.sequences.first + i);
    Sequence* s = table_.find(&group, pending.needs[index].sequence);
    if (s == nullptr || s->state != SequenceState::swapped) continue;
    if (status == AllocStatus::never) {
      table_.recompute(group, *s);
      batch_planner_.on_capacity_freed();
      if (!group.decoding->has_independent_sequences()) return;
      continue;
    }
    s->state = SequenceState::running;
    s->num_drafted_tokens = 0;  // equal blocks may have taken the place of its own: without the draft model's KV
    table_.pending_updates.to_report.push_back(s->id);
    ++num_back;
  }
  if (num_back == 0) return;
  table_.reserve_rows(group, group.decoding->has_independent_sequences() ? num_back : group.decoding->num_rows(group));
  table_.enqueue(group);
}

void SchedulerCore::apply_waiting(const PendingGrant& pending, const MemoryGrant& grant, StepBuilder& building,
                                  TimeUs now) {
  batch_planner_.limit_offers(pending, grant);
  for (std::size_t i = 0; i < pending.waiting.size(); ++i) {
    const WaitingRef& ref = pending.waiting[i];
    const AdmissionOutcome& outcome = grant.waiting[i];
    SequenceGroup* group = table_.find(ref.group);
    Sequence* s = table_.find(group, ref.sequence);
    if (s == nullptr || s->state != SequenceState::waiting) {
      if (outcome.status == AllocStatus::ok) undo_admission(ref.sequence, grant.step);
      continue;
    }
    s->is_passed_over = outcome.is_passed_over;
    if (outcome.status == AllocStatus::later) continue;
    const bool awaits_failed_step =
        table_.pending_updates.first_failed_step > 0 && outcome.awaits_step >= table_.pending_updates.first_failed_step;
    if (outcome.status == AllocStatus::ok && awaits_failed_step) {
      undo_admission(ref.sequence, grant.step);
      continue;
    }
    if (outcome.status == AllocStatus::never) {
      if (s->output.empty()) {
        ++stats_.requests_failed_total;
        end_group(*group, Error{ErrorCode::context_too_long,
                                "the prompt of " + std::to_string(group->prompt_len()) +
                                    " tokens does not fit into the KV cache",
                                "prompt", -1});
      } else {
        outgrew(*group, *s);
      }
      continue;
    }
    if (group->first_scheduled_us < 0) {
      group->first_scheduled_us = now;
      stats_.prompt_tokens_total += std::ssize(group->spec->own_prompt());
      outputs_.started.push_back({group->entry.id, now, outcome.num_cached_tokens});
    }
    s->state = SequenceState::running;
    s->num_scheduled_tokens = s->num_computed_tokens = s->num_reported = outcome.num_cached_tokens;
    s->num_reported_tokens = s->output.size();
    s->num_admitted_tokens = group->prompt_len() + static_cast<std::int32_t>(s->output.size());
    const auto lost = std::int64_t{std::min(std::exchange(s->num_lost_tokens, 0), s->num_admitted_tokens)};
    metrics_.recomputed_tokens += std::max<std::int64_t>(0, lost - outcome.num_cached_tokens);
    s->awaits_step = outcome.awaits_step;
    s->recompute_tokens.reset();
    table_.reserve_rows(*group, ref.num_rows);
    table_.enqueue(*group);
    building.run(*group, *s, outcome.num_new_tokens);
  }
}

/// Undoes an admission whose sequence does not run: no sequence may rely on the blocks that it should have computed.
void SchedulerCore::undo_admission(SequenceId admitted, StepId step) {
  table_.pending_updates.releases.push_back(admitted);
  table_.pending_updates.steps_failed(step);
}

/// Ends the sequence with its present tokens, when its results in flight are known.
void SchedulerCore::outgrew(SequenceGroup& group, Sequence& sequence) {
  sequence.outgrew = true;
  cut_outgrown(group);
}

}  // namespace pagoda::scheduling
