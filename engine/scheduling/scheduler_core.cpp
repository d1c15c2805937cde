#include "engine/scheduling/scheduler_core.hpp"

#include <algorithm>
#include <set>

#include "engine/sampling/row_sampling.hpp"

namespace pagoda::scheduling {

SchedulerCore::SchedulerCore(SchedulerConfig config) : config_(std::move(config)) {
  PAGODA_ASSERT(config_.max_num_seqs > 0 && config_.max_num_seqs <= config_.max_num_batched_tokens,
                "every row must fit into a step");
  PAGODA_ASSERT(config_.pipeline_depth == 1 || config_.pipeline_depth == 2, "pipeline_depth is 1 or 2");
  stats_.device_blocks_total = stats_.device_blocks_free = config_.num_device_blocks;
  stats_.host_blocks_total = stats_.host_blocks_free = config_.num_host_blocks;
  waiting_ = make_waiting_queue(config_.policy, config_.priority_aging_s);
  free_rows_.reserve(static_cast<std::size_t>(config_.max_num_seqs));
  for (RowId row = config_.max_num_seqs - 1; row >= 0; --row) free_rows_.push_back(row);
}

SequenceGroup* SchedulerCore::find(RequestId id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

Sequence* SchedulerCore::find(SequenceGroup* group, SequenceId id) {
  if (group == nullptr) return nullptr;
  for (Sequence& s : group->sequences) {
    if (s.id == id) return &s;
  }
  return nullptr;
}

// -- events
// ------------------------------------------------------------------------------------------------------------

void SchedulerCore::add_group(SharedSpec spec) {
  auto group = std::make_unique<SequenceGroup>();
  group->entry = {spec->id, spec->priority, spec->user, static_cast<std::int64_t>(spec->prompt->size()),
                  spec->arrival_us};
  group->spec = std::move(spec);
  group->decoding = make_decoding(*group->spec, config_.eos_token_ids);
  group->forked = group->num_samples() == 1 && !group->decoding->chooses_tokens();
  group->next_prompt_logprob = group->spec->sampling.prompt_logprobs ? 1 : group->prompt_len();
  group->first_unknown_prompt_logprob = group->next_prompt_logprob;
  Sequence& first = group->sequences.emplace_back();
  first.id = next_sequence_++;
  group_of_[first.id] = group->entry.id;
  SequenceGroup& added = *group;
  const bool fresh = groups_.emplace(added.entry.id, std::move(group)).second;
  PAGODA_ASSERT(fresh, "request ids are unique");
  place(added);
  changed_ = true;
}

void SchedulerCore::abort_group(RequestId request) {
  if (SequenceGroup* group = find(request)) {
    ++stats_.requests_aborted_total;
    end_group(*group, std::nullopt);
  }
}

void SchedulerCore::stop_hit(const StopHit& hit) {
  SequenceGroup* group = find(hit.request);
  if (group == nullptr) return;
  for (Sequence& s : group->sequences) {
    if (s.index == hit.sequence_index && s.state != SequenceState::finished) finish_sequence(*group, s);
  }
  if (!group->forked || !group->all_finished()) return;
  ++stats_.requests_finished_total;
  erase_group(*group);
}

void SchedulerCore::swap_measured(const SwapMeasured& measured) {
  cost_.swap_measured(measured.bytes, measured.duration_us);
  stats_.swap_bytes_total += measured.bytes;
  stats_.swap_bytes_per_s = cost_.measured_swap_bytes_per_s();
}

void SchedulerCore::device_replaced(bool memory_lost) {
  std::vector<RequestId> in_last_steps;
  for (const InFlightStep& step : in_flight_) {
    for (const WorkRef& work : step.work) in_last_steps.push_back(work.group);
  }
  if (!in_flight_.empty()) steps_failed(in_flight_.front().step);
  if (pending_) {
    pending_->discarded = true;
    pending_->memory_lost |= memory_lost;
    steps_failed(pending_->step);
  }
  device_memory_lost_ |= memory_lost;
  in_flight_.clear();
  last_completed_step_ = next_step_ - 1;
  std::vector<SequenceGroup*> affected = running_;
  affected.insert(affected.end(), swapped_.begin(), swapped_.end());
  for (const auto& [id, group] : groups_) group->num_in_flight = 0;
  for (SequenceGroup* group : affected) recompute(*group);
  for (const auto& [id, group] : groups_) {
    group->next_prompt_logprob = group->first_unknown_prompt_logprob;
    for (Sequence& s : group->sequences) s.num_placeholders = 0;
  }
  rows_gone_.clear();
  ++stats_.worker_restarts_total;
  fail_killers_of_workers(in_last_steps);
  something_was_freed();
}

/// What these steps were to compute is not there; with the next plan the block manager is told.
void SchedulerCore::steps_failed(StepId first) {
  first_failed_step_ = first_failed_step_ == 0 ? first : std::min(first_failed_step_, first);
}

/// Groups that were admitted with blocks that only the failed steps computed, and were not in these steps themselves,
/// start anew: they have told nothing that came of it.
void SchedulerCore::recompute_readers(StepId first_failed) {
  std::vector<SequenceGroup*> readers;
  for (const auto* groups : {&running_, &swapped_}) {
    for (SequenceGroup* group : *groups) {
      const bool reads = std::ranges::any_of(group->sequences, [&](const Sequence& s) {
        return s.state != SequenceState::finished && s.awaits_step >= first_failed;
      });
      if (reads && std::ranges::find(readers, group) == readers.end()) readers.push_back(group);
    }
  }
  for (SequenceGroup* group : readers) {
    for (InFlightStep& step : in_flight_) {
      for (WorkRef& work : step.work) work.dropped |= work.group == group->entry.id;
    }
    group->next_prompt_logprob = group->first_unknown_prompt_logprob;
    for (Sequence& s : group->sequences) s.num_placeholders = 0;
    recompute(*group);
  }
}

/// What was running when one worker after the other died is not run again and again: one of them may be why.
void SchedulerCore::fail_killers_of_workers(const std::vector<RequestId>& running) {
  for (const RequestId id : std::set<RequestId>(running.begin(), running.end())) {
    SequenceGroup* group = find(id);
    if (group == nullptr || ++group->workers_lost < kMaxWorkersLost) continue;
    ++stats_.requests_failed_total;
    end_group(*group, Error{ErrorCode::internal,
                            "the request was running each time that one of " + std::to_string(kMaxWorkersLost) +
                                " devices died",
                            {},
                            -1});
  }
}

// -- the block manager's answer
// ------------------------------------------------------------------------------------------

std::optional<ExecuteStep> SchedulerCore::on_step_plan(const StepPlan& plan, TimeUs now) {
  PAGODA_ASSERT(pending_ && pending_->step == plan.step, "a StepPlan answers the one outstanding PlanStep");
  const PendingPlan pending = std::move(*pending_);
  pending_.reset();
  stats_.device_blocks_total = plan.memory.device_blocks_total;
  stats_.device_blocks_free = plan.memory.device_blocks_free;
  stats_.device_blocks_cached = plan.memory.device_blocks_cached;
  stats_.host_blocks_total = plan.memory.host_blocks_total;
  stats_.host_blocks_free = plan.memory.host_blocks_free;
  stats_.allocated_slots = plan.memory.allocated_slots;
  stats_.used_slots = plan.memory.used_slots;
  stats_.prefix_cache_queries_total = plan.memory.prefix_cache_queries;
  stats_.prefix_cache_hits_total = plan.memory.prefix_cache_hits;

  // A plan that runs nothing need not be made again, unless it asked for prompts alone or something happens meanwhile.
  changed_ |= pending.prompts_only && !running_.empty();
  if (pending.discarded) {
    for (const WaitingRef& ref : pending.waiting) releases_.push_back(ref.sequence);
    changed_ = true;
    if (!plan.has_cache_plan || pending.memory_lost) return std::nullopt;
  }
  ExecuteStep step;
  step.step = plan.step;
  step.wait_for_cache = plan.has_cache_plan;
  building_ = {};
  building_.step = plan.step;
  bool anything_scheduled = plan.has_cache_plan;
  if (!pending.discarded) {
    for (std::size_t i = 0; i < plan.running.size(); ++i) {
      const bool runs = pending.running[i].sequences.count > 0;
      anything_scheduled |= runs && plan.running[i] == RunningOutcome::scheduled;
    }
    for (const AllocStatus status : plan.swapped) anything_scheduled |= status == AllocStatus::ok;
    for (const AdmissionOutcome& outcome : plan.waiting) anything_scheduled |= outcome.status == AllocStatus::ok;
    apply_running(pending, plan, step);
    apply_swapped(pending, plan, step);
    apply_waiting(pending, plan, step, now);
    copy_table_deltas(plan, step);
  }
  // Where prompts have steps of their own, they take turns with what runs when nothing came of them.
  decodes_first_ = pending.prompts_only && !anything_scheduled;
  // A step whose sequences have all ended meanwhile is still run, empty: its blocks are stamped with it.
  if (!anything_scheduled) return std::nullopt;
  changed_ = true;
  step.rows_gone = std::exchange(rows_gone_, {});
  in_flight_.push_back(std::move(building_));
  return step;
}

/// Runs the rows of a group that is served. A sequence that has ended meanwhile is left out; if others may count on
/// what it was to compute, they must not: readers come behind it in every plan.
void SchedulerCore::run_rows(const PendingPlan& pending, RequestId id, Range rows, ExecuteStep& step) {
  SequenceGroup* group = find(id);
  for (std::int32_t i = rows.first; i < rows.first + rows.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const SequenceNeed& need = pending.needs[index];
    Sequence* s = find(group, need.sequence);
    if (s != nullptr && s->state == SequenceState::running) {
      run(*group, *s, need.num_new_tokens, step);
    } else if (pending.shares[index]) {
      steps_failed(pending.step);
    }
  }
}

void SchedulerCore::apply_running(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step) {
  for (std::size_t i = 0; i < pending.running.size(); ++i) {
    const RunningCandidate& candidate = pending.running[i];
    if (plan.running[i] == RunningOutcome::scheduled) {
      run_rows(pending, candidate.group, candidate.sequences, step);
      continue;
    }
    SequenceGroup* group = find(candidate.group);
    if (group == nullptr) continue;
    switch (plan.running[i]) {
      case RunningOutcome::scheduled:
      case RunningOutcome::skipped:
        break;
      case RunningOutcome::preempted_recompute:
        ++stats_.preemptions_recompute_total;
        preempt(*group, SequenceState::waiting);
        break;
      case RunningOutcome::preempted_swap:
        ++stats_.preemptions_swap_total;
        preempt(*group, SequenceState::swapped);
        break;
      case RunningOutcome::never:
        preempt(*group, SequenceState::waiting);
        outgrew(*group);
        break;
    }
  }
}

/// It ends with what it has, once its results in flight are known.
void SchedulerCore::outgrew(SequenceGroup& group) {
  group.grew_too_large = true;
  if (group.num_in_flight == 0) end_with_length(group);
}

void SchedulerCore::apply_swapped(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step) {
  for (std::size_t i = 0; i < pending.swapped.size(); ++i) {
    const SwapInCandidate& candidate = pending.swapped[i];
    SequenceGroup* group = find(candidate.group);
    if (plan.swapped[i] == AllocStatus::never && group != nullptr) recompute(*group);
    if (plan.swapped[i] != AllocStatus::ok) continue;
    if (group != nullptr) {
      for (Sequence& s : group->sequences) {
        if (s.state != SequenceState::swapped) continue;
        s.state = SequenceState::running;
        to_report_.push_back(s.id);
      }
      reserve_rows(*group);
      place(*group);
    }
    run_rows(pending, candidate.group, candidate.sequences, step);
  }
}

/// Where the memory had no room for more, offering many again costs time for nothing.
void SchedulerCore::limit_offers(const PendingPlan& pending, const StepPlan& plan) {
  std::int32_t used = 0;
  const auto add = [&](Range range) {
    for (std::int32_t i = 0; i < range.count; ++i)
      used += pending.needs[static_cast<std::size_t>(range.first + i)].num_new_tokens;
  };
  for (std::size_t i = 0; i < plan.running.size(); ++i) {
    if (plan.running[i] == RunningOutcome::scheduled) add(pending.running[i].sequences);
  }
  for (std::size_t i = 0; i < plan.swapped.size(); ++i) {
    if (plan.swapped[i] == AllocStatus::ok) add(pending.swapped[i].sequences);
  }
  std::size_t admitted = 0;
  bool all_answered = true;
  for (const AdmissionOutcome& outcome : plan.waiting) {
    used += outcome.num_new_tokens;
    admitted += outcome.status == AllocStatus::ok ? 1 : 0;
    all_answered &= outcome.status != AllocStatus::later;
  }
  most_offers_ = all_answered || used >= pending.token_budget ? kAllOffers : std::max<std::size_t>(1, 2 * admitted);
}

/// It was admitted, but does not run: nobody may count on what it was to compute.
void SchedulerCore::leave_out(SequenceId admitted, StepId step) {
  releases_.push_back(admitted);
  steps_failed(step);
}

void SchedulerCore::apply_waiting(const PendingPlan& pending, const StepPlan& plan, ExecuteStep& step, TimeUs now) {
  limit_offers(pending, plan);
  for (std::size_t i = 0; i < pending.waiting.size(); ++i) {
    const WaitingRef& ref = pending.waiting[i];
    const AdmissionOutcome& outcome = plan.waiting[i];
    SequenceGroup* group = find(ref.group);
    Sequence* s = find(group, ref.sequence);
    if (s == nullptr || s->state != SequenceState::waiting) {
      if (outcome.status == AllocStatus::ok) leave_out(ref.sequence, plan.step);
      continue;
    }
    if (outcome.status == AllocStatus::later) continue;
    const bool awaits_failed_step = first_failed_step_ > 0 && outcome.awaits_step >= first_failed_step_;
    if (outcome.status == AllocStatus::ok && awaits_failed_step) {
      leave_out(ref.sequence, plan.step);
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
        outgrew(*group);
      }
      continue;
    }
    if (group->first_scheduled_us < 0) {
      group->first_scheduled_us = now;
      stats_.prompt_tokens_total += group->prompt_len();
      outputs_.started.push_back({group->entry.id, now, outcome.num_cached_tokens});
    }
    s->state = SequenceState::running;
    s->num_scheduled_tokens = s->num_computed_tokens = s->num_reported = outcome.num_cached_tokens;
    s->num_reported_tokens = s->output.size();
    s->num_admitted_tokens = group->prompt_len() + static_cast<std::int32_t>(s->output.size());
    s->awaits_step = outcome.awaits_step;
    s->recompute_tokens.reset();
    reserve_rows(*group);
    place(*group);
    run(*group, *s, outcome.num_new_tokens, step);
  }
}

RowSpec SchedulerCore::row_spec(const SequenceGroup& group) const {
  RowSpec row{group.spec->prompt, row_sampling(group.spec->sampling, config_.eos_token_ids), group.spec->seed, 0};
  row.sampling.appends_samples = !group.decoding->chooses_tokens();
  return row;
}

void SchedulerCore::run(SequenceGroup& group, Sequence& sequence, std::int32_t num_tokens, ExecuteStep& step) {
  if (num_tokens == 0) return;
  if (sequence.row < 0) {
    PAGODA_ASSERT(!free_rows_.empty(), "rows are reserved at admission");
    sequence.row = free_rows_.back();
    free_rows_.pop_back();
    step.new_rows.push_back({sequence.row, sequence.id, sequence.index, row_spec(group), sequence.output});
    sequence.num_row_tokens = sequence.output.size();
  }
  if (group.decoding->chooses_tokens()) {
    for (; sequence.num_row_tokens < sequence.output.size(); ++sequence.num_row_tokens) {
      step.chosen_tokens.push_back({sequence.row, sequence.output[sequence.num_row_tokens]});
    }
  }
  RowWork work{sequence.row, sequence.id, sequence.num_scheduled_tokens, num_tokens, 0, 0, 0};
  sequence.num_scheduled_tokens += num_tokens;
  if (sequence.num_scheduled_tokens == group.length(sequence)) {
    work.num_samples = group.decoding->num_samples_at_end(group);
    sequence.num_placeholders += work.num_samples > 0 ? 1 : 0;
  }
  // The token at position p tells the log-probability of the one at p + 1.
  const std::int32_t end_prompt_logprob = std::min(sequence.num_scheduled_tokens + 1, group.prompt_len());
  if (group.next_prompt_logprob < end_prompt_logprob) {
    work.first_prompt_logprob = group.next_prompt_logprob;
    work.num_prompt_logprobs = end_prompt_logprob - group.next_prompt_logprob;
    group.next_prompt_logprob = end_prompt_logprob;
  }
  ++group.num_in_flight;
  waiting_->charge(group.entry, num_tokens);
  building_.work.push_back({group.entry.id, sequence.id, sequence.epoch, work.num_samples});
  building_.num_tokens += num_tokens;
  if (num_tokens > 1) building_.num_prompt_tokens += num_tokens;
  step.work.push_back(work);
}

void SchedulerCore::copy_table_deltas(const StepPlan& plan, ExecuteStep& step) {
  for (const TableDelta& delta : plan.table_deltas) {
    const auto owner = group_of_.find(delta.sequence);
    if (owner == group_of_.end()) continue;
    const Sequence* s = find(find(owner->second), delta.sequence);
    if (s == nullptr || s->row < 0) continue;
    const auto first = static_cast<std::int32_t>(step.blocks.size());
    const auto begin = plan.blocks.begin() + delta.blocks.first;
    step.blocks.insert(step.blocks.end(), begin, begin + delta.blocks.count);
    step.table_deltas.push_back({s->row, delta.first_block, {first, delta.blocks.count}, delta.group});
  }
}

void SchedulerCore::preempt(SequenceGroup& group, SequenceState to) {
  for (Sequence& s : group.sequences) {
    if (s.state != SequenceState::running && !(s.state == SequenceState::swapped && to == SequenceState::waiting)) {
      continue;
    }
    give_row_back(s);
    s.state = to;
    if (to == SequenceState::waiting) drop_kv(s);
  }
  if (to == SequenceState::waiting) {
    std::vector<SequenceId> gone;
    group.decoding->on_kv_lost(group, gone);
    for (const SequenceId id : gone) group_of_.erase(id);
  }
  place(group);
  something_was_freed();
}

/// All KV of the group is forgotten, wherever it is.
void SchedulerCore::recompute(SequenceGroup& group) {
  for (const Sequence& s : group.sequences) {
    if (s.state == SequenceState::running || s.state == SequenceState::swapped) releases_.push_back(s.id);
  }
  preempt(group, SequenceState::waiting);
}

void SchedulerCore::reserve_rows(SequenceGroup& group) {
  if (group.rows_reserved > 0) return;
  group.rows_reserved = group.decoding->num_rows(group);
  rows_reserved_ += group.rows_reserved;
}

void SchedulerCore::drop_kv(Sequence& sequence) {
  sequence.num_scheduled_tokens = sequence.num_computed_tokens = sequence.num_reported = 0;
  ++sequence.epoch;
  sequence.awaits_step = 0;
  sequence.recompute_tokens.reset();
}

void SchedulerCore::give_row_back(Sequence& sequence) {
  if (sequence.row < 0) return;
  free_rows_.push_back(sequence.row);
  rows_gone_.push_back(sequence.row);
  sequence.row = -1;
}

}  // namespace pagoda::scheduling
