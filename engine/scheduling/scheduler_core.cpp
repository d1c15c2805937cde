#include "engine/scheduling/scheduler_core.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/scheduling/queue_view.hpp"
#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

template <class T>
std::span<const T> part(const std::vector<T>& all, Range range) {
  return std::span(all).subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count));
}

}  // namespace

SchedulerCore::SchedulerCore(SchedulerConfig config)
    : config_(std::move(config)),
      table_(config_),
      batch_planner_(config_, table_),
      masks_(config_, table_, batch_planner_, in_flight_, metrics_) {
  PAGODA_ASSERT(config_.max_num_seqs > 0 && config_.max_num_seqs <= config_.max_num_batched_tokens,
                "every row must fit into a step");
  PAGODA_ASSERT(config_.pipeline_depth == 1 || config_.pipeline_depth == 2, "pipeline_depth is 1 or 2");
  PAGODA_ASSERT(config_.num_stages > 0, "there is a stage");
  stats_.device_blocks_total = stats_.device_blocks_free = config_.num_device_blocks;
  stats_.host_blocks_total = stats_.host_blocks_free = config_.num_host_blocks;
}

void SchedulerCore::add_group(SharedSpec spec) {
  auto group = std::make_unique<SequenceGroup>();
  group->spec = std::move(spec);
  group->follow_spec(config_, table_.history);
  const auto progress = group->spec->progress;
  group->next_prompt_logprob = group->prompt_len();
  if (group->spec->sampling.prompt_logprobs) {
    // The first token, behind virtual ones, has no log-probability.
    group->next_prompt_logprob = group->spec->num_virtual_tokens() + 1 +
                                 (progress ? static_cast<std::int32_t>(progress->prompt_logprobs.size()) : 0);
  }
  group->first_unknown_prompt_logprob = group->next_prompt_logprob;
  group->decoding->begin(*group);
  SequenceGroup& added = *group;
  table_.add(std::move(group));
  if (progress && progress->has_ended()) {
    end_group(added, progress->error);
  } else if (progress) {
    table_.replace_finished(added);
  }
  batch_planner_.invalidate_plan();
}

void SchedulerCore::abort_group(RequestId request) {
  if (SequenceGroup* group = table_.find(request)) {
    ++stats_.requests_aborted_total;
    end_group(*group, std::nullopt);
  }
}

bool SchedulerCore::release_group(RequestId request) {
  SequenceGroup* group = table_.find(request);
  if (group == nullptr) return false;
  erase_group(*group);
  return true;
}

bool SchedulerCore::is_given_up(StepId last_planned) const {
  if (plan_outstanding() && this->last_planned() <= last_planned) return false;
  return in_flight_.empty() || in_flight_.front().step > last_planned;
}

void SchedulerCore::expire_group(RequestId request, const Error& error) {
  if (SequenceGroup* group = table_.find(request)) {
    ++stats_.requests_failed_total;
    end_group(*group, error);
  }
}

void SchedulerCore::stop_hit(const StopHit& hit) {
  SequenceGroup* group = table_.find(hit.request);
  if (group == nullptr) return;
  for (Sequence& s : group->sequences) {
    if (s.index == hit.sequence_index && s.state != SequenceState::finished) finish(*group, s);
  }
  if (!group->forked || !group->all_finished()) return table_.replace_finished(*group);
  ++stats_.requests_finished_total;
  erase_group(*group);
}

void SchedulerCore::swap_measured(const SwapMeasured& measured) {
  batch_planner_.swap_measured(measured);
  metrics_.copy_seconds.observe(static_cast<double>(measured.duration_us) / 1e6);
  stats_.swap_bytes_total += measured.bytes;
  stats_.swap_bytes_per_s = batch_planner_.measured_swap_bytes_per_s();
}

void SchedulerCore::device_replaced(bool memory_lost, bool crashed) {
  Quarantine::Crash crash{.began_us = in_flight_.empty() ? 0 : in_flight_.front().planned_us};
  for (const InFlightStep& step : in_flight_) {
    for (const WorkRef& work : step.work) {
      if (table_.find(work.group) != nullptr) {
        crash.ran.insert(work.group);
      } else {
        crash.ended_ran = true;
      }
    }
  }
  for (const RequestId id : crash.ran) {
    if (!crashed) break;
    // Set before any state is lost: a step behind these tokens has crashed the worker.
    SequenceGroup* group = table_.find(id);
    if (group->longest_output() == 0 && group->num_finished_tokens == 0) crash.without_output.insert(id);
    group->cleared_length = group->longest_output() + config_.pipeline_depth;
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::finished)
        group->cleared_length = std::max(group->cleared_length, s.num_generated());
    }
  }
  if (!in_flight_.empty() && !lost_at_us_) lost_at_us_ = last_request_us_;
  if (!in_flight_.empty()) table_.pending_updates.steps_failed(in_flight_.front().step);
  if (const auto& pending = batch_planner_.pending()) table_.pending_updates.steps_failed(pending->step);
  batch_planner_.discard_pending(memory_lost);
  table_.pending_updates.device_memory_lost |= memory_lost;
  // All running sequences are admitted again. The block manager may have moved parents to the host, in a plan that runs
  // nothing.
  table_.pending_updates.forks.clear();
  in_flight_.clear();
  last_completed_step_ = batch_planner_.last_planned();
  std::vector<SequenceGroup*> affected = table_.running;
  affected.insert(affected.end(), table_.swapped.begin(), table_.swapped.end());
  for (const auto& [id, group] : table_.groups) group->num_in_flight = 0;
  for (SequenceGroup* group : affected) {
    if (group->in_running || group->in_swapped) restart(*group);  // the group may be in both lists
  }
  for (const auto& [id, group] : table_.groups) {
    group->next_prompt_logprob = group->first_unknown_prompt_logprob;
    forget_samples(*group);
  }
  table_.rows_gone.clear();
  ++stats_.worker_restarts_total;
  if (crashed) {
    find_culprit(crash);
  } else {
    table_.quarantine.end_rest();
  }
  batch_planner_.on_capacity_freed();
}

/// Forgets the samples of steps in flight, which will not come. Masks that are being made for them may be for other
/// drafts than those of the next step, so they are made again.
void SchedulerCore::forget_samples(SequenceGroup& group) const {
  Constraint* const constraint = config_.speculation.is_on() ? group.decoding->constraint() : nullptr;
  for (Sequence& s : group.sequences) {
    s.forget_samples();
    if (constraint != nullptr && s.state != SequenceState::finished) constraint->on_output_replaced(s);
  }
}

/// Restarts groups that were admitted with blocks that only the failed steps computed. The groups were not in these
/// steps themselves, and have sent no output that depends on these blocks.
void SchedulerCore::restart_readers(StepId first_failed) {
  std::vector<SequenceGroup*> readers;
  for (const auto* groups : {&table_.running, &table_.swapped}) {
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
    forget_samples(*group);
    restart(*group);
  }
}

void SchedulerCore::find_culprit(const Quarantine::Crash& crash) {
  const auto culprit = table_.quarantine.crashed(crash);
  if (!culprit) return;
  ++stats_.requests_failed_total;
  end_group(*table_.find(*culprit),
            Error{ErrorCode::internal, "the request crashes workers: it ran alone when the last one crashed", {}, -1});
}

/// Ends the trial when every request on trial has run behind the token at which a worker crashed.
void SchedulerCore::end_passed_trial() {
  Quarantine& quarantine = table_.quarantine;
  // A plan may have offered these requests.
  if (quarantine.is_empty() || batch_planner_.pending()) return;
  for (const RequestId id : quarantine.on_trial()) {
    const SequenceGroup* group = table_.find(id);
    if (group != nullptr && group->longest_output() < group->cleared_length) return;
  }
  quarantine.trial_passed();
  batch_planner_.on_capacity_freed();
}

void SchedulerCore::on_step_result(const StepResult& result) {
  if (in_flight_.empty() || result.step < in_flight_.front().step) return;  // result of a worker that was replaced
  PAGODA_ASSERT(in_flight_.front().step == result.step, "results come in the order of the steps");
  const InFlightStep step = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  last_completed_step_ = result.step;
  ++stats_.steps_total;
  metrics_.tokens.observe(static_cast<double>(step.num_tokens));
  metrics_.compute_seconds.observe(static_cast<double>(result.finished_us - result.started_us) / 1e6);
  if (const auto lost = std::exchange(lost_at_us_, std::nullopt)) {
    metrics_.worker_pause.observe(static_cast<double>(result.finished_us - *lost) / 1e6);
  }
  const TimeUs duration_us = result.finished_us - result.started_us;
  batch_planner_.step_measured(step, duration_us,
                               std::clamp<TimeUs>(result.draft_us, 0, std::max<TimeUs>(0, duration_us)));
  outputs_.step = result.step;
  outputs_.finished_us = result.finished_us;
  outputs_.outputs.reserve(outputs_.outputs.size() + step.work.size());
  batch_planner_.invalidate_plan();
  PAGODA_ASSERT(result.error || result.rows.size() == step.work.size(), "each row of a step has a result");
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    if (result.error) {
      fail_row(step.work[i], *result.error);
    } else {
      accept(step.work[i], result.rows[i], result);
    }
  }
  if (result.error) {
    table_.pending_updates.steps_failed(result.step);
    restart_readers(result.step);
  }
  table_.quarantine.step_ended();
  end_passed_trial();
}

/// Returns the group of a row whose part in a step has ended; null if the group has ended, or the result is not used.
SequenceGroup* SchedulerCore::finish_row(const WorkRef& work) {
  SequenceGroup* group = table_.find(work.group);
  if (group == nullptr) return nullptr;
  --group->num_in_flight;
  if (!work.dropped) return group;
  batch_planner_.invalidate_plan();
  cut_outgrown(*group);
  return nullptr;
}

void SchedulerCore::fail_row(const WorkRef& work, const Error& error) {
  SequenceGroup* group = finish_row(work);
  if (group == nullptr) return;
  ++stats_.requests_failed_total;
  end_group(*group, error);
}

void SchedulerCore::accept(const WorkRef& work, const RowResult& row, const StepResult& result) {
  PAGODA_ASSERT(row.sequence == work.sequence, "rows come in their order");
  if (row.error() != nullptr) {
    // The row's blocks hold KV of the base model under the adapter's id.
    if (row.error()->code == ErrorCode::bad_adapter) table_.pending_updates.steps_failed(result.step);
    return fail_row(work, *row.error());
  }
  const std::span<const TokenReport> samples = part(result.samples, row.samples());
  const std::int32_t num_right_drafts = row.samples().count - work.num_samples;
  PAGODA_ASSERT(num_right_drafts >= 0 && num_right_drafts <= work.num_drafts, "a row samples what it was to sample");
  SequenceGroup* group = finish_row(work);
  if (group == nullptr) return;
  report_prompt_logprobs(*group, part(result.prompt_logprobs, row.prompt_logprobs));
  Sequence* s = table_.find(group, work.sequence);
  const bool is_current = s != nullptr && work.epoch == s->epoch;
  if (is_current) {
    apply_computed(work, row.num_computed_tokens, *group, *s);
    mark_dirty(*s);
  }
  if (work.late) return cut_outgrown(*group);
  metrics_.count_drafts(work.num_drafts, num_right_drafts);
  if (work.has_made_drafts) batch_planner_.made_drafts_verified(s, work.num_drafts, num_right_drafts);
  if (work.num_drafts > 0) outputs_.drafts.push_back({group->entry.id, work.num_drafts, num_right_drafts});
  if (is_current || (s != nullptr && group->decoding->has_independent_sequences())) {
    const auto index = static_cast<std::size_t>(s - group->sequences.data());
    if (group->decoding->on_result(*group, index, samples, *this)) {
      ++stats_.requests_finished_total;
      erase_group(*group);
      return;
    }
    table_.replace_finished(*group);
    // The samples of a prompt may have made sequences without rows.
    if (!group->in_waiting && group->any(SequenceState::waiting)) table_.enqueue(*group);
  }
  cut_outgrown(*group);
}

void SchedulerCore::report_prompt_logprobs(SequenceGroup& group, std::span<const TokenReport> reports) {
  if (reports.empty()) return;
  group.first_unknown_prompt_logprob += static_cast<std::int32_t>(reports.size());
  outputs_.prompt_logprobs.push_back({group.entry.id, {reports.begin(), reports.end()}});
}

void SchedulerCore::mark_dirty(const Sequence& sequence) {
  std::vector<SequenceId>& ids = table_.pending_updates.to_report;
  // One result marks its sequence several times.
  if (sequence.state == SequenceState::running && (ids.empty() || ids.back() != sequence.id))
    ids.push_back(sequence.id);
}

void SchedulerCore::drop(Sequence& sequence) {
  table_.release(sequence);
  const auto owner = table_.group_of.extract(sequence.id);
  SequenceGroup* group = owner ? table_.find(owner.mapped()) : nullptr;
  if (group != nullptr) {
    group->decoding->on_end(sequence.id);
    group->decoding->erase(sequence.id);
  }
  batch_planner_.on_capacity_freed();
}

void SchedulerCore::finish(SequenceGroup& group, Sequence& sequence) {
  table_.finish(group, sequence);
  batch_planner_.on_capacity_freed();
}

void SchedulerCore::preempt(SequenceGroup& group, Sequence& sequence, SequenceState to) {
  ++(to == SequenceState::swapped ? stats_.preemptions_swap_total : stats_.preemptions_recompute_total);
  interrupted(group, Interruption::preempted);
  table_.preempt(group, sequence, to);
  batch_planner_.on_capacity_freed();
}

void SchedulerCore::restart(SequenceGroup& group) {
  interrupted(group, Interruption::restarted);
  table_.recompute(group);
  batch_planner_.on_capacity_freed();
}

/// Reports the interruption once, however many sequences of the group it affects.
void SchedulerCore::interrupted(const SequenceGroup& group, Interruption what) {
  const bool is_known = std::ranges::any_of(outputs_.interrupted, [&](const RequestInterrupted& one) {
    return one.request == group.entry.id && one.what == what;
  });
  if (!is_known) outputs_.interrupted.push_back({group.entry.id, what});
}

void SchedulerCore::end_group(SequenceGroup& group, std::optional<Error> error) {
  outputs_.ends.push_back({group.entry.id, std::move(error)});
  erase_group(group);
}

void SchedulerCore::cut_outgrown(SequenceGroup& group) {
  if (!group.in_waiting) return;
  for (std::size_t i = 0; i < group.sequences.size(); ++i) {
    const Sequence& s = group.sequences[i];
    const bool awaits_results =
        group.decoding->has_independent_sequences() ? s.num_placeholders > 0 : group.num_in_flight > 0;
    if (!s.outgrew || s.state == SequenceState::finished || awaits_results) continue;
    if (!group.decoding->cut(group, i, *this)) continue;
    ++stats_.requests_finished_total;
    return erase_group(group);
  }
  table_.replace_finished(group);
}

void SchedulerCore::erase_group(SequenceGroup& group) {
  for (Sequence& s : group.sequences) {
    if (s.state != SequenceState::finished) finish(group, s);
  }
  table_.erase(group);
  batch_planner_.on_capacity_freed();  // this also frees requests that were held back
}

std::optional<MemoryRequest> SchedulerCore::next_memory_request(TimeUs now) {
  if (static_cast<std::int32_t>(in_flight_.size()) >= config_.max_steps_in_flight()) return std::nullopt;
  last_request_us_ = plan_outstanding() ? last_request_us_ : now;
  if (table_.quarantine.end_rest_if_over(now)) batch_planner_.on_capacity_freed();
  auto plan = batch_planner_.next(now, last_completed_step_, in_flight_);
  const bool nothing_runs = !plan && !plan_outstanding() && in_flight_.empty();
  if (!nothing_runs || !table_.quarantine.end_rest()) return plan;
  batch_planner_.on_capacity_freed();
  return batch_planner_.next(now, last_completed_step_, in_flight_);
}

StepOutputs SchedulerCore::take_outputs() {
  return std::exchange(outputs_, StepOutputs{});
}

EngineStats SchedulerCore::stats() const {
  EngineStats stats = stats_;
  stats.requests_waiting = static_cast<std::int64_t>(table_.waiting->size());
  stats.requests_running = static_cast<std::int64_t>(table_.running.size());
  stats.requests_swapped = static_cast<std::int64_t>(table_.swapped.size());
  return stats;
}

std::vector<GroupProgress> SchedulerCore::progress() const {
  std::vector<GroupProgress> all;
  all.reserve(table_.groups.size());
  for (const auto& [id, group] : table_.groups) {
    GroupProgress progress{id, pagoda::RequestState::waiting, 0};
    if (group->any(SequenceState::running)) {
      progress.state = pagoda::RequestState::running;
    } else if (group->any(SequenceState::swapped)) {
      progress.state = pagoda::RequestState::swapped;
    }
    progress.generated_tokens = group->num_finished_tokens;
    for (const Sequence& s : group->sequences) progress.generated_tokens += std::ssize(s.output);
    all.push_back(progress);
  }
  std::ranges::sort(all, {}, &GroupProgress::id);
  return all;
}

view::Queues SchedulerCore::queues() const {
  view::Queues queues{list_requests(table_), {}};
  for (const InFlightStep& step : in_flight_) {
    queues.steps_in_flight.push_back({step.step, step.num_tokens, std::ssize(step.work)});
  }
  return queues;
}

std::optional<std::string> SchedulerCore::check_invariants() const {
  if (static_cast<std::int32_t>(in_flight_.size()) > config_.max_steps_in_flight()) return "too many steps in flight";
  std::unordered_map<RequestId, std::int32_t> in_steps;
  for (const InFlightStep& step : in_flight_) {
    for (const WorkRef& work : step.work) ++in_steps[work.group];
  }
  for (const auto& [id, group] : table_.groups) {
    const auto counted = in_steps.find(id);
    if (group->num_in_flight != (counted == in_steps.end() ? 0 : counted->second))
      return "the steps in flight of request " + std::to_string(id) + " were miscounted";
  }
  return table_.check_invariants(config_.pipeline_depth);
}

}  // namespace pagoda::scheduling
