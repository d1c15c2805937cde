#include "engine/scheduling/group_table.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

void drop_kv(Sequence& sequence) {
  sequence.num_lost_tokens = std::max(sequence.num_lost_tokens, sequence.num_computed_tokens);
  sequence.num_scheduled_tokens = sequence.num_computed_tokens = sequence.num_reported = 0;
  sequence.num_drafted_tokens = 0;
  ++sequence.epoch;
  sequence.awaits_step = 0;
  sequence.recompute_tokens.reset();
}

}  // namespace

void PendingUpdates::steps_failed(StepId first) {
  first_failed_step = first_failed_step == 0 ? first : std::min(first_failed_step, first);
}

GroupTable::GroupTable(const SchedulerConfig& config)
    : waiting(make_waiting_queue(config.policy, config.priority_aging_s)),
      max_rows(config.max_num_seqs),
      history(config.speculation) {
  free_rows.reserve(static_cast<std::size_t>(max_rows));
  for (RowId row = max_rows - 1; row >= 0; --row) free_rows.push_back(row);
}

SequenceGroup* GroupTable::find(RequestId id) const {
  const auto found = groups.find(id);
  return found == groups.end() ? nullptr : found->second.get();
}

Sequence* GroupTable::find(SequenceGroup* group, SequenceId id) {
  if (group == nullptr) return nullptr;
  std::vector<Sequence>& all = group->sequences;
  if (all.size() == 1) return all.front().id == id ? &all.front() : nullptr;
  const bool is_sorted = group->decoding->has_independent_sequences();
  const auto found =
      is_sorted ? std::ranges::lower_bound(all, id, {}, &Sequence::id) : std::ranges::find(all, id, &Sequence::id);
  return found == all.end() || found->id != id ? nullptr : &*found;
}

std::optional<RequestId> GroupTable::head_of_queue() const {
  std::optional<RequestId> head;
  waiting->visit_in_order([&](RequestId id) {
    if (quarantine.holds_back(id) || groups.at(id)->awaits_masks()) return true;
    head = id;
    return false;
  });
  return head;
}

void GroupTable::add(std::unique_ptr<SequenceGroup> group) {
  SequenceGroup& added = *group;
  if (added.sequences.empty()) added.sequences.emplace_back();
  for (Sequence& sequence : added.sequences) {
    sequence.id = next_sequence++;
    group_of[sequence.id] = added.entry.id;
  }
  const bool fresh = groups.emplace(added.entry.id, std::move(group)).second;
  PAGODA_ASSERT(fresh, "request ids are unique");
  enqueue(added);
}

void GroupTable::erase(SequenceGroup& group) {
  for (const Sequence& s : group.sequences) group_of.erase(s.id);
  if (group.rows_reserved > 0) rows_reserved -= std::exchange(group.rows_reserved, 0);
  quarantine.forget(group.entry.id);
  groups.erase(group.entry.id);
}

void GroupTable::enqueue(SequenceGroup& group) {
  const auto set_membership = [&](std::vector<SequenceGroup*>& list, bool wanted, bool& present) {
    if (wanted == present) return;
    present = wanted;
    if (!wanted) {
      list.erase(std::find(list.begin(), list.end(), &group));
      return;
    }
    const auto before = [&](const SequenceGroup* a, const SequenceGroup* b) {
      return waiting->runs_before(a->entry, b->entry);
    };
    list.insert(std::upper_bound(list.begin(), list.end(), &group, before), &group);
  };
  set_membership(running, group.any(SequenceState::running), group.in_running);
  if (!group.in_running) rows_reserved -= std::exchange(group.rows_reserved, 0);
  set_membership(swapped, group.any(SequenceState::swapped), group.in_swapped);
  const bool waits = group.any(SequenceState::waiting);
  if (waits != group.in_waiting) {
    group.in_waiting = waits;
    if (waits && group.first_scheduled_us >= 0) {
      waiting->put_back(group.entry);
    } else if (waits) {
      waiting->push(group.entry);
    } else {
      waiting->erase(group.entry);
    }
  }
}

void GroupTable::reserve_rows(SequenceGroup& group, std::int32_t count) {
  group.rows_reserved += count;
  rows_reserved += count;
}

void GroupTable::take_row(Sequence& sequence) {
  PAGODA_ASSERT(!free_rows.empty(), "rows are reserved at admission");
  sequence.row = free_rows.back();
  free_rows.pop_back();
}

void GroupTable::give_row_back(Sequence& sequence) {
  if (sequence.row < 0) return;
  free_rows.push_back(sequence.row);
  rows_gone.push_back(sequence.row);
  sequence.row = -1;
}

Sequence GroupTable::fork_of(const Sequence& parent, const SequenceGroup& group) {
  Sequence child = parent;
  child.id = next_sequence++;
  child.row = -1;
  child.num_reported = 0;  // the block manager starts the child with the tokens that it knows of the parent
  group_of[child.id] = group.entry.id;
  child.awaits_mask = false;
  group.decoding->on_fork(parent.id, child.id);
  const bool is_independent = group.decoding->has_independent_sequences();
  if (is_independent && parent.state == SequenceState::swapped) {
    child.state = SequenceState::waiting;
    drop_kv(child);
  }
  if (child.state != SequenceState::waiting) pending_updates.forks.push_back({parent.id, child.id, is_independent});
  return child;
}

void GroupTable::release(Sequence& sequence) {
  if (sequence.state == SequenceState::running) {
    // The prefix cache may still use its last tokens.
    for (; sequence.num_reported_tokens < sequence.output.size(); ++sequence.num_reported_tokens) {
      pending_updates.sampled.push_back({sequence.id, sequence.output[sequence.num_reported_tokens]});
    }
    if (sequence.num_computed_tokens > sequence.num_reported)
      pending_updates.progress.push_back({sequence.id, sequence.num_computed_tokens});
  }
  if (sequence.state == SequenceState::running || sequence.state == SequenceState::swapped) {
    pending_updates.releases.push_back(sequence.id);
  }
  give_row_back(sequence);
  sequence.state = SequenceState::finished;
}

void GroupTable::finish(SequenceGroup& group, Sequence& sequence) {
  const bool had_row = sequence.state == SequenceState::running || !group.decoding->has_independent_sequences();
  release(sequence);
  if (group.decoding->has_independent_sequences()) history.add(*group.spec, sequence.output);
  group.has_finished = true;
  group.decoding->on_end(sequence.id);
  if (had_row && group.rows_reserved > 0) reserve_rows(group, -1);
  enqueue(group);
}

void GroupTable::replace_finished(SequenceGroup& group) {
  if (!group.forked || !group.decoding->has_independent_sequences()) return;
  const bool others_begin = group.num_to_begin > 0 && std::ssize(group.sequences) < max_rows;
  if (!std::exchange(group.has_finished, false) && !others_begin) return;
  std::erase_if(group.sequences, [&](const Sequence& s) {
    if (s.state != SequenceState::finished) return false;
    group.num_finished_tokens += std::ssize(s.output);
    group_of.erase(s.id);
    group.decoding->erase(s.id);
    return true;
  });
  for (; group.num_to_begin > 0 && std::ssize(group.sequences) < max_rows; --group.num_to_begin) {
    Sequence& added = group.sequences.emplace_back();
    added.id = next_sequence++;
    added.index = group.num_samples() - group.num_to_begin;
    group_of[added.id] = group.entry.id;
  }
  enqueue(group);
}

void GroupTable::preempt_one(SequenceGroup& group, Sequence& sequence, SequenceState to) {
  const bool was_running = sequence.state == SequenceState::running;
  if (!was_running && !(sequence.state == SequenceState::swapped && to == SequenceState::waiting)) return;
  give_row_back(sequence);
  sequence.state = to;
  if (!sequence.waits) sequence.ahead.drafts.clear();  // they were not planned
  sequence.max_draft_inputs = 0;
  if (to == SequenceState::waiting) drop_kv(sequence);
  // Release rows that are not reserved for sequences that go on.
  if (was_running && group.decoding->has_independent_sequences()) {
    reserve_rows(group, group.forked ? -1 : -group.rows_reserved);
  }
}

void GroupTable::drop_unreported_forks(SequenceGroup* group, SequenceId parent) {
  std::erase_if(pending_updates.forks, [&](const Fork& fork) {
    if (fork.parent != parent) return false;
    if (Sequence* child = find(group, fork.child)) preempt_one(*group, *child, SequenceState::waiting);
    return true;
  });
  if (group != nullptr) enqueue(*group);
}

void GroupTable::notify_lost_kv(SequenceGroup& group) {
  std::vector<SequenceId> gone;
  group.decoding->on_kv_lost(group, gone);
  for (const SequenceId id : gone) {
    group_of.erase(id);
    group.decoding->on_end(id);
    group.decoding->erase(id);
  }
}

void GroupTable::preempt(SequenceGroup& group, Sequence& sequence, SequenceState to) {
  if (group.decoding->has_independent_sequences()) {
    preempt_one(group, sequence, to);
    drop_unreported_forks(&group, sequence.id);
  } else {
    for (Sequence& s : group.sequences) preempt_one(group, s, to);
    if (to == SequenceState::waiting) notify_lost_kv(group);
  }
  enqueue(group);
}

void GroupTable::recompute(SequenceGroup& group, Sequence& sequence) {
  if (!group.decoding->has_independent_sequences()) return recompute(group);
  if (sequence.state == SequenceState::running || sequence.state == SequenceState::swapped) {
    pending_updates.releases.push_back(sequence.id);
  }
  preempt(group, sequence, SequenceState::waiting);
}

void GroupTable::recompute(SequenceGroup& group) {
  for (Sequence& s : group.sequences) {
    if (s.state == SequenceState::running || s.state == SequenceState::swapped)
      pending_updates.releases.push_back(s.id);
    preempt_one(group, s, SequenceState::waiting);
  }
  notify_lost_kv(group);
  enqueue(group);
}

void GroupTable::move_updates_into(MemoryRequest& plan) {
  pending_updates.sampled.reserve(pending_updates.to_report.size());
  pending_updates.progress.reserve(pending_updates.to_report.size());
  for (const SequenceId id : pending_updates.to_report) {
    const auto group = group_of.find(id);
    if (group == group_of.end()) continue;
    Sequence* s = find(find(group->second), id);
    if (s == nullptr || s->state != SequenceState::running) continue;
    for (; s->num_reported_tokens < s->output.size(); ++s->num_reported_tokens) {
      pending_updates.sampled.push_back({id, s->output[s->num_reported_tokens]});
    }
    if (s->num_computed_tokens > s->num_reported) {
      s->num_reported = s->num_computed_tokens;
      pending_updates.progress.push_back({id, s->num_computed_tokens});
    }
  }
  pending_updates.to_report.clear();
  plan.sampled = std::exchange(pending_updates.sampled, {});
  plan.progress = std::exchange(pending_updates.progress, {});
  plan.forks = std::exchange(pending_updates.forks, {});
  plan.releases = std::exchange(pending_updates.releases, {});
  plan.first_failed_step = std::exchange(pending_updates.first_failed_step, 0);
  plan.device_memory_lost = std::exchange(pending_updates.device_memory_lost, false);
  plan.reset_prefix_cache = std::exchange(pending_updates.reset_prefix_cache, false);
}

std::optional<std::string> GroupTable::check_invariants(std::int32_t pipeline_depth) const {
  std::unordered_set<RowId> rows(free_rows.begin(), free_rows.end());
  if (rows.size() != free_rows.size()) return "a free row is listed twice";
  std::size_t num_waiting = 0;
  std::size_t num_running = 0;
  std::size_t num_swapped = 0;
  std::int32_t reserved = 0;
  for (const auto& [id, group] : groups) {
    const std::string name = "request " + std::to_string(id);
    if (group->all_finished()) return name + " has ended but is still kept";
    num_waiting += group->any(SequenceState::waiting) ? 1 : 0;
    num_running += group->any(SequenceState::running) ? 1 : 0;
    num_swapped += group->any(SequenceState::swapped) ? 1 : 0;
    reserved += group->rows_reserved;
    if (group->any(SequenceState::running) != (group->rows_reserved > 0)) return name + " runs without reserved rows";
    std::int32_t rows_used = 0;
    for (const Sequence& s : group->sequences) {
      if (group_of.count(s.id) == 0) return name + " has an unlisted sequence";
      if (s.row >= 0) {
        ++rows_used;
        if (s.state != SequenceState::running) return name + " keeps a row without running";
        if (!rows.insert(s.row).second) return "row " + std::to_string(s.row) + " is used twice";
      }
      const bool has_certain = !s.ahead.forced.empty() || s.ahead.will_end;
      if (s.state != SequenceState::finished && (has_certain || s.awaits_drafts()) && s.num_placeholders == 0)
        return name + " has tokens after a sample, but no sample is in flight";
      // A finished sequence may lose its placeholders with a worker.
      if (s.state != SequenceState::finished && s.num_scheduled_tokens > group->length(s))
        return name + " has scheduled more tokens than it has";
      if (s.num_computed_tokens > s.num_scheduled_tokens) return name + " has computed more tokens than were scheduled";
      if (s.num_placeholders < 0 || s.num_placeholders > pipeline_depth) return name + " has bad placeholders";
    }
    if (rows_used > group->rows_reserved) return name + " uses more rows than it reserved";
  }
  if (static_cast<std::int32_t>(rows.size()) != max_rows) return "a row was lost";
  if (num_waiting != waiting->size()) return "the waiting queue disagrees with the groups";
  if (num_running != running.size()) return "the running list disagrees with the groups";
  if (num_swapped != swapped.size()) return "the swapped list disagrees with the groups";
  if (reserved != rows_reserved) return "reserved rows were miscounted";
  return std::nullopt;
}

}  // namespace pagoda::scheduling
