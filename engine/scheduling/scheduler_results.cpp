// The result half of SchedulerCore: what a finished step changes, how sequences and groups end, and the facts.

#include <algorithm>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::scheduling {
namespace {

template <class T>
std::span<const T> part(const std::vector<T>& all, Range range) {
  return std::span(all).subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count));
}

}  // namespace

void SchedulerCore::on_step_result(const StepResult& result) {
  if (in_flight_.empty() || result.step < in_flight_.front().step) return;  // of a worker that was replaced
  PAGODA_ASSERT(in_flight_.front().step == result.step, "results come in the order of the steps");
  const InFlightStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  last_completed_step_ = result.step;
  ++stats_.steps_total;
  if (step.num_prompt_tokens > 0) last_prompt_step_us_ = result.finished_us - result.started_us;
  step_times_.step_measured(step.num_tokens, result.finished_us - result.started_us);
  cost_.step_measured(step.num_tokens, step.num_prompt_tokens, result.finished_us - result.started_us);
  outputs_.step = result.step;
  outputs_.finished_us = result.finished_us;
  changed_ = true;
  PAGODA_ASSERT(result.error || result.rows.size() == step.work.size(), "each row of a step has a result");
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    if (result.error) {
      fail_work(step.work[i], *result.error);
    } else {
      accept(step.work[i], result.rows[i], result);
    }
  }
  if (result.error) {
    steps_failed(result.step);
    recompute_readers(result.step);
  }
}

/// The group of a row whose part in a step has ended; null when it has ended itself, or the result means nothing.
SequenceGroup* SchedulerCore::ended_work(const WorkRef& work) {
  SequenceGroup* group = find(work.group);
  if (group == nullptr) return nullptr;
  --group->num_in_flight;
  if (!work.dropped) return group;
  changed_ = true;
  if (group->grew_too_large && group->num_in_flight == 0) end_with_length(*group);
  return nullptr;
}

void SchedulerCore::fail_work(const WorkRef& work, const Error& error) {
  SequenceGroup* group = ended_work(work);
  if (group == nullptr) return;
  ++stats_.requests_failed_total;
  end_group(*group, error);
}

void SchedulerCore::accept(const WorkRef& work, const RowResult& row, const StepResult& result) {
  PAGODA_ASSERT(row.sequence == work.sequence && row.samples.count == work.num_samples, "rows come in their order");
  if (row.error) return fail_work(work, *row.error);
  SequenceGroup* group = ended_work(work);
  if (group == nullptr) return;
  report_prompt_logprobs(*group, part(result.prompt_logprobs, row.prompt_logprobs));
  const std::span<const TokenReport> samples = part(result.samples, row.samples);
  Sequence* s = find(group, work.sequence);
  const bool is_current = s != nullptr && work.epoch == s->epoch;
  if (is_current) {
    s->num_computed_tokens = row.num_computed_tokens;
    has_news(*s);
  }
  if (is_current || (s != nullptr && group->decoding->keeps_tokens_of_lost_kv())) {
    const auto index = static_cast<std::size_t>(s - group->sequences.data());
    if (group->decoding->on_result(*group, index, samples, *this)) {
      ++stats_.requests_finished_total;
      erase_group(*group);
      return;
    }
  }
  if (group->grew_too_large && group->num_in_flight == 0) end_with_length(*group);
}

void SchedulerCore::report_prompt_logprobs(SequenceGroup& group, std::span<const TokenReport> reports) {
  if (reports.empty()) return;
  group.first_unknown_prompt_logprob += static_cast<std::int32_t>(reports.size());
  outputs_.prompt_logprobs.push_back({group.entry.id, {reports.begin(), reports.end()}});
}

Sequence SchedulerCore::fork_of(const Sequence& parent, const SequenceGroup& group) {
  Sequence child = parent;
  child.id = next_sequence_++;
  child.row = -1;
  child.num_reported = 0;  // the block manager lets it begin with what it knows of its tokens
  group_of_[child.id] = group.entry.id;
  if (parent.state != SequenceState::waiting) forks_.push_back({parent.id, child.id});
  return child;
}

void SchedulerCore::has_news(const Sequence& sequence) {
  if (sequence.state == SequenceState::running) to_report_.push_back(sequence.id);
}

void SchedulerCore::drop(Sequence& sequence) {
  let_go(sequence);
  group_of_.erase(sequence.id);
  something_was_freed();
}

/// The sequence runs no more: gives back its row and its blocks.
void SchedulerCore::let_go(Sequence& sequence) {
  if (sequence.state == SequenceState::running) {
    // Its last tokens may still serve the prefix cache.
    for (; sequence.num_reported_tokens < sequence.output.size(); ++sequence.num_reported_tokens) {
      sampled_.push_back({sequence.id, sequence.output[sequence.num_reported_tokens]});
    }
    if (sequence.num_computed_tokens > sequence.num_reported)
      progress_.push_back({sequence.id, sequence.num_computed_tokens});
  }
  if (sequence.state == SequenceState::running || sequence.state == SequenceState::swapped) {
    releases_.push_back(sequence.id);
  }
  give_row_back(sequence);
  sequence.state = SequenceState::finished;
}

void SchedulerCore::finish_sequence(SequenceGroup& group, Sequence& sequence) {
  let_go(sequence);
  if (group.rows_reserved > 0) {
    --group.rows_reserved;
    --rows_reserved_;
  }
  place(group);
  something_was_freed();
}

void SchedulerCore::end_group(SequenceGroup& group, std::optional<Error> error) {
  outputs_.ends.push_back({group.entry.id, std::move(error)});
  erase_group(group);
}

void SchedulerCore::end_with_length(SequenceGroup& group) {
  group.decoding->cut(group, *this);
  ++stats_.requests_finished_total;
  erase_group(group);
}

void SchedulerCore::erase_group(SequenceGroup& group) {
  for (Sequence& s : group.sequences) {
    if (s.state != SequenceState::finished) finish_sequence(group, s);
    group_of_.erase(s.id);
  }
  if (group.rows_reserved > 0) rows_reserved_ -= std::exchange(group.rows_reserved, 0);
  groups_.erase(group.entry.id);
}

/// Puts the group into the queues that its sequences' states ask for, and only into those. A group of which nothing
/// runs keeps no rows.
void SchedulerCore::place(SequenceGroup& group) {
  const auto set_membership = [&](std::vector<SequenceGroup*>& list, bool wanted, bool& present) {
    if (wanted == present) return;
    present = wanted;
    if (!wanted) {
      list.erase(std::find(list.begin(), list.end(), &group));
      return;
    }
    const auto before = [&](const SequenceGroup* a, const SequenceGroup* b) {
      return waiting_->runs_before(a->entry, b->entry);
    };
    list.insert(std::upper_bound(list.begin(), list.end(), &group, before), &group);
  };
  set_membership(running_, group.any(SequenceState::running), group.in_running);
  if (!group.in_running) rows_reserved_ -= std::exchange(group.rows_reserved, 0);
  set_membership(swapped_, group.any(SequenceState::swapped), group.in_swapped);
  const bool waits = group.any(SequenceState::waiting);
  if (waits != group.in_waiting) {
    group.in_waiting = waits;
    if (waits) {
      waiting_->push(group.entry);
    } else {
      waiting_->erase(group.entry);
    }
  }
}

void SchedulerCore::something_was_freed() {
  most_offers_ = kAllOffers;
  decodes_first_ = false;
  changed_ = true;
}

StepOutputs SchedulerCore::take_outputs() {
  return std::exchange(outputs_, StepOutputs{});
}

EngineStats SchedulerCore::stats() const {
  EngineStats stats = stats_;
  stats.requests_waiting = static_cast<std::int64_t>(waiting_->size());
  stats.requests_running = static_cast<std::int64_t>(running_.size());
  stats.requests_swapped = static_cast<std::int64_t>(swapped_.size());
  return stats;
}

std::optional<std::string> SchedulerCore::check_invariants() const {
  std::unordered_set<RowId> rows(free_rows_.begin(), free_rows_.end());
  if (rows.size() != free_rows_.size()) return "a free row is listed twice";
  std::size_t waiting = 0;
  std::size_t running = 0;
  std::size_t swapped = 0;
  std::int32_t reserved = 0;
  for (const auto& [id, group] : groups_) {
    const std::string name = "request " + std::to_string(id);
    if (group->all_finished()) return name + " has ended but is still kept";
    waiting += group->any(SequenceState::waiting) ? 1 : 0;
    running += group->any(SequenceState::running) ? 1 : 0;
    swapped += group->any(SequenceState::swapped) ? 1 : 0;
    reserved += group->rows_reserved;
    if (group->any(SequenceState::running) != (group->rows_reserved > 0)) return name + " runs without reserved rows";
    std::int32_t rows_used = 0;
    for (const Sequence& s : group->sequences) {
      if (group_of_.count(s.id) == 0) return name + " has an unlisted sequence";
      if (s.row >= 0) {
        ++rows_used;
        if (s.state != SequenceState::running) return name + " keeps a row without running";
        if (!rows.insert(s.row).second) return "row " + std::to_string(s.row) + " is used twice";
      }
      // One that has finished may lose its placeholders with a worker.
      if (s.state != SequenceState::finished && s.num_scheduled_tokens > group->length(s))
        return name + " has scheduled more tokens than it has";
      if (s.num_computed_tokens > s.num_scheduled_tokens) return name + " has computed more tokens than were scheduled";
      if (s.num_placeholders < 0 || s.num_placeholders > config_.pipeline_depth) return name + " has bad placeholders";
    }
    if (rows_used > group->rows_reserved) return name + " uses more rows than it reserved";
  }
  if (static_cast<std::int32_t>(rows.size()) != config_.max_num_seqs) return "a row was lost";
  if (waiting != waiting_->size()) return "the waiting queue disagrees with the groups";
  if (running != running_.size()) return "the running list disagrees with the groups";
  if (swapped != swapped_.size()) return "the swapped list disagrees with the groups";
  if (reserved != rows_reserved_) return "reserved rows were miscounted";
  if (static_cast<std::int32_t>(in_flight_.size()) > config_.pipeline_depth) return "too many steps in flight";
  return std::nullopt;
}

}  // namespace pagoda::scheduling
