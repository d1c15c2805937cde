// Sequences that the next plan brings into the batch, swapped and waiting ones; and the running sequences that give way
// to them.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/scheduling/batch_planner.hpp"

namespace pagoda::scheduling {
namespace {

/// Returns whether no step in flight contains the sequence.
bool is_at_rest(const SequenceGroup& group, const Sequence& s) {
  if (!group.decoding->has_independent_sequences()) return group.num_in_flight == 0;
  return s.num_placeholders == 0 && s.num_computed_tokens == s.num_scheduled_tokens;
}

}  // namespace

std::vector<const SequenceGroup*> BatchPlanner::swapped_in_order() const {
  std::vector<const SequenceGroup*> groups(table_.swapped.begin(), table_.swapped.end());
  std::ranges::sort(groups, [&](const SequenceGroup* a, const SequenceGroup* b) {
    return table_.waiting->comes_in_before(a->entry, b->entry);
  });
  return groups;
}

void BatchPlanner::add_incoming_candidates(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped,
                                           std::int32_t used, bool with_waiting) {
  Room room;
  room.free_rows = table_.num_free_rows();
  room.rows_for_new = num_rows_for_new();
  room.used_tokens = used;
  auto next = swapped.begin();
  bool is_open = true;
  // Other groups would only pause until the group that runs alone has passed.
  const SequenceGroup* solo = table_.solo_group();
  const auto stays_out = [&](RequestId id) {
    return table_.quarantine.holds_back(id) || (solo != nullptr && id != solo->entry.id);
  };
  const auto add_swapped_before = [&](const SequenceGroup* waiting) {
    for (; is_open && next != swapped.end(); ++next) {
      if (waiting != nullptr && !table_.waiting->comes_in_before((*next)->entry, waiting->entry)) return;
      if (stays_out((*next)->entry.id)) continue;
      is_open = add_swapped_group(**next, plan, room);
    }
  };
  if (with_waiting) {
    const auto on_trial = table_.quarantine.on_trial();
    for (const RequestId id : on_trial) {
      SequenceGroup* group = table_.find(id);
      if (group == nullptr || !group->in_waiting || !is_open || table_.quarantine.holds_back(id)) continue;
      is_open = add_waiting_group(*group, plan, room);
    }
    table_.waiting->visit_in_order([&](RequestId id) {
      if (!is_open) return false;
      const bool has_been = std::ranges::find(on_trial, id) != on_trial.end();
      if (has_been || stays_out(id)) return true;
      SequenceGroup& group = *table_.groups.at(id);
      add_swapped_before(&group);
      is_open = is_open && add_waiting_group(group, plan, room);
      return is_open;
    });
  }
  add_swapped_before(nullptr);
}

/// Returns false if no group behind this one may be admitted: a sequence of it has no row or awaits results.
bool BatchPlanner::add_swapped_group(const SequenceGroup& group, MemoryRequest& plan, Room& room) {
  if (!adapters_.admit(group.spec->adapter.id)) return true;
  const bool is_independent = group.decoding->has_independent_sequences();
  const auto first_of_all = static_cast<std::int32_t>(plan.needs.size());
  auto first = first_of_all;
  const auto add_candidate = [&] {
    const auto count = static_cast<std::int32_t>(plan.needs.size()) - first;
    plan.swapped.push_back({group.entry.id, {first, count}, static_cast<std::int32_t>(plan.waiting.size())});
    // A group that comes back is not a prompt: it gets room besides all prompts.
    plan.token_budget = std::min(plan.token_budget + count, config_.max_num_batched_tokens);
    room.used_tokens += count;
    first += count;
  };
  if (!is_independent) {
    const std::int32_t rows = group.rows_wanted();
    if (group.num_in_flight > 0 || room.free_rows < rows) return false;
    room.take_rows(rows);
  }
  for (const Sequence& s : group.sequences) {
    if (s.state != SequenceState::swapped) continue;
    if (is_independent && (room.free_rows < 1 || !is_at_rest(group, s))) return false;
    // A chunk continues in the next step; a sequence that comes back runs at most one token now.
    add_need(plan, s, std::min(group.runnable_tokens(s), 1));
    if (!is_independent) continue;
    room.take_rows(1);
    add_candidate();
  }
  if (!is_independent) add_candidate();
  return true;
}

AdmissionCandidate BatchPlanner::admission_of(const SequenceGroup& group, Sequence& sequence) const {
  if (!sequence.output.empty() && !sequence.recompute_tokens) {
    auto all = std::make_shared<TokenIds>(*group.spec->prompt);
    all->insert(all->end(), sequence.output.begin(), sequence.output.end());
    sequence.recompute_tokens = std::move(all);
  }
  AdmissionCandidate candidate;
  candidate.group = group.entry.id;
  candidate.sequence = sequence.id;
  candidate.tokens = sequence.recompute_tokens ? sequence.recompute_tokens : group.spec->prompt;
  candidate.cache_salt = group.spec->cache_salt;
  candidate.adapter = group.spec->adapter.id;
  // With its generated tokens, a sequence may be longer than a step for which its windows and the pool have room.
  candidate.may_chunk = config_.enable_chunked_prefill || (config_.layout.has_window() && !sequence.output.empty());
  candidate.use_prefix_cache = group.next_prompt_logprob >= group.prompt_len();
  return candidate;
}

/// Returns whether a prompt that counts as long may begin beside those that run partially.
bool may_begin_long_prompt(const MemoryRequest& plan) {
  return plan.long_prompt_tokens == 0 || plan.max_partial_long_prompts > 0;
}

/// Returns false if no group behind this one may be admitted. Long prompts that the block manager has passed over are
/// offered again when a long prompt may begin.
bool BatchPlanner::add_waiting_group(SequenceGroup& group, MemoryRequest& plan, Room& room) {
  if (group.awaits_masks()) return true;
  // The group was preempted and results are still to come: no other group may overtake it. Independent sequences do not
  // all wait: some of them may run meanwhile.
  const bool goes_on_together = group.sequences.size() == 1 || !group.decoding->has_independent_sequences();
  if (group.num_in_flight > 0 && goes_on_together) return false;
  // A group of which no sequence is offered takes no adapter's place in the step.
  const auto is_offered = [&](const Sequence& s) {
    if (s.state != SequenceState::waiting || s.awaits_mask) return false;
    const bool is_skipped = is_long(group.length(s)) && s.is_passed_over && !may_begin_long_prompt(plan);
    return !is_skipped || s.num_placeholders > 0;
  };
  if (std::ranges::none_of(group.sequences, is_offered)) return true;
  if (!adapters_.admit(group.spec->adapter.id)) return true;
  for (Sequence& s : group.sequences) {
    if (!is_offered(s)) continue;
    if (s.num_placeholders > 0) return false;
    const std::int32_t length = group.length(s);
    const std::int32_t left = plan.token_budget - room.used_tokens;
    const bool is_long_prompt = is_long(length);
    const std::int32_t rows_wanted = group.rows_wanted();
    if (room.num_offered >= left || room.rows_for_new < rows_wanted || plan.waiting.size() >= max_offers_) return false;
    AdmissionCandidate candidate = admission_of(group, s);
    if (is_long_prompt) {
      if (!room.short_tokens) room.short_tokens = tokens_for_short_prompts(left, /*of_running=*/false, true);
      candidate.max_chunk = std::max(1, left - room.num_offered - *room.short_tokens);
      if (config_.long_prefill_tokens > 0)
        candidate.max_chunk = std::min(candidate.max_chunk, config_.long_prefill_tokens);
    }
    if (group.logprobs_of_prompt_token() > 0) {
      const std::int32_t most = within_logprobs(group, length);
      candidate.max_chunk = candidate.max_chunk > 0 ? std::min(candidate.max_chunk, most) : most;
    }
    ++room.num_offered;
    // A prompt samples as many sequences as there are rows; the other sequences are admitted one by one.
    const bool samples_several = group.decoding->has_independent_sequences() && !group.forked;
    const std::int32_t rows = samples_several ? std::min(group.num_samples(), room.rows_for_new) : rows_wanted;
    room.take_rows(rows);
    rows_.push_back(rows);
    plan.waiting.push_back(std::move(candidate));
  }
  return true;
}

void BatchPlanner::let_all_give_way_to(const SequenceGroup& solo, MemoryRequest& plan) const {
  const std::int32_t rows_lacking = solo.rows_wanted() - table_.num_free_rows();
  std::int32_t rows_freed = 0;
  for (auto candidate = plan.running.rbegin(); candidate != plan.running.rend(); ++candidate) {
    if (candidate->group == solo.entry.id) return;
    ++plan.num_giving_way;
    if (rows_freed >= rows_lacking) continue;
    ++plan.num_preempted_for_rows;
    rows_freed += rows_freed_by(*candidate);
  }
}

std::int32_t BatchPlanner::rows_freed_by(const RunningCandidate& candidate) const {
  const SequenceGroup& group = *table_.groups.at(candidate.group);
  return group.forked && group.decoding->has_independent_sequences() ? 1 : group.rows_reserved;
}

void BatchPlanner::let_less_urgent_give_way(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped,
                                            bool is_delay_over) const {
  if (config_.policy != SchedulingPolicy::priority || !config_.preempts_for_priority) return;
  if (!table_.quarantine.is_empty()) return;
  const SequenceGroup* head = first_of_queue();
  if (!swapped.empty() && (head == nullptr || table_.waiting->comes_in_before(swapped.front()->entry, head->entry))) {
    head = swapped.front();
  }
  if (head == nullptr) return;
  // A head that is not offered now, because it has no row or awaits a result, does not take memory yet.
  const bool swapped_first = !plan.swapped.empty() && plan.swapped.front().num_waiting_before == 0;
  const bool is_offered = swapped_first ? plan.swapped.front().group == head->entry.id
                                        : !plan.waiting.empty() && plan.waiting.front().group == head->entry.id;
  const auto is_less_urgent = [&](const RunningCandidate& candidate) {
    const SequenceGroup& group = *table_.groups.at(candidate.group);
    return group.entry.priority > head->entry.priority && table_.waiting->runs_before(head->entry, group.entry);
  };
  // A target of times may allow fewer rows than there are.
  const std::int32_t rows_lacking =
      head->rows_wanted() - (head->in_waiting ? num_rows_for_new() : table_.num_free_rows());
  std::int32_t num_less_urgent = 0;
  std::int32_t num_preempted = 0;
  std::int32_t rows_freed = 0;
  for (auto candidate = plan.running.rbegin(); candidate != plan.running.rend(); ++candidate) {
    if (!is_less_urgent(*candidate)) break;
    ++num_less_urgent;
    if (rows_freed >= rows_lacking) continue;
    ++num_preempted;
    rows_freed += rows_freed_by(*candidate);
  }
  if (is_offered) plan.num_giving_way = num_less_urgent;
  // None is preempted if the head cannot come in: it needs more rows, waits for the end of a long prompt or of its
  // delay, or more rows are taken than the target allows.
  const bool is_passed_over = std::ranges::any_of(head->sequences, &Sequence::is_passed_over);
  const bool may_come_in = !head->in_waiting || (is_delay_over && rows_within_target() >= 0);
  if (rows_freed >= rows_lacking && may_come_in && (!is_passed_over || may_begin_long_prompt(plan))) {
    plan.num_preempted_for_rows = num_preempted;
  }
}

}  // namespace pagoda::scheduling
