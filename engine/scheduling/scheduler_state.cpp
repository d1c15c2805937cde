// The scheduler's state as bytes. The bytes may be anything, so all values that later code relies on (ids, ranges,
// rows) are checked here.

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/scheduling/scheduler_core.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::scheduling {
namespace {

constexpr std::int32_t kMaxPlaceholders = 2;  ///< limit for every pipeline_depth

bool is_valid(const PendingGrant& plan) {
  const auto is_in_needs = [&](const auto& candidate) {
    const std::int64_t first = candidate.sequences.first;
    const std::int64_t count = candidate.sequences.count;
    return first >= 0 && count >= 0 && first + count <= std::ssize(plan.needs);
  };
  return plan.shares.size() == plan.needs.size() && std::ranges::all_of(plan.running, is_in_needs) &&
         std::ranges::all_of(plan.swapped, is_in_needs);
}

}  // namespace

void GroupTable::save(Encoder& out) const {
  std::vector<const SequenceGroup*> in_order;
  for (const auto& [id, group] : groups) in_order.push_back(group.get());
  std::ranges::sort(in_order, {}, [](const SequenceGroup* group) { return group->entry.id; });
  out.put(in_order.size());
  for (const SequenceGroup* group : in_order) {
    out.put(*group);
    group->decoding->save(out);
  }
  waiting->save(out);
  history.save(out);
  visit_fields(*this, [&](const auto&... fields) { (out.put(fields), ...); });
}

bool GroupTable::load(Decoder& in, const SchedulerConfig& config) {
  std::size_t num_groups = 0;
  if (!in.get(num_groups)) return false;
  for (; num_groups > 0; --num_groups) {
    if (!load_group(in, config)) return false;
  }
  if (!load_queues(in) || !history.load(in, config.vocab_size)) return false;
  if (!visit_fields(*this, [&](auto&... fields) { return (in.get(fields) && ...); })) return false;
  const auto is_row = [&](RowId row) { return row >= 0 && row < max_rows; };
  const auto is_given = [&](const auto& owned) { return owned.first < next_sequence; };
  const auto is_group = [&](RequestId id) { return groups.contains(id); };
  return rows_reserved <= max_rows && std::ranges::all_of(free_rows, is_row) &&
         std::ranges::all_of(rows_gone, is_row) && std::ranges::all_of(group_of, is_given) && quarantine.is_valid() &&
         std::ranges::all_of(quarantine.quarantined(), is_group);
}

bool GroupTable::load_group(Decoder& in, const SchedulerConfig& config) {
  auto read = std::make_unique<SequenceGroup>();
  SequenceGroup& group = *read;
  if (!in.get(group) || !pagoda::is_valid(group.spec)) return false;
  group.follow_spec(config, history);
  if (!is_valid(group)) return false;
  for (const Sequence& s : group.sequences) {
    if (!group_of.emplace(s.id, group.entry.id).second) return false;
  }
  rows_reserved += group.rows_reserved;
  return group.decoding->load(in, group) && groups.emplace(group.entry.id, std::move(read)).second;
}

bool GroupTable::is_valid(const SequenceGroup& group) const {
  const auto is_prompt_position = [&](std::int32_t at) { return at >= 0 && at <= group.prompt_len(); };
  const bool is_sorted = !group.forked || group.spec->sampling.use_beam_search ||
                         std::ranges::is_sorted(group.sequences, {}, &Sequence::id);
  return is_sorted && group.num_to_begin >= 0 && group.num_to_begin <= group.num_samples() &&
         group.num_finished_tokens >= 0 && group.rows_reserved >= 0 &&
         group.rows_reserved <= max_rows - rows_reserved && is_prompt_position(group.next_prompt_logprob) &&
         is_prompt_position(group.first_unknown_prompt_logprob) &&
         std::ranges::all_of(group.sequences, [&](const Sequence& s) {
           return s.row >= -1 && s.row < max_rows && s.num_computed_tokens >= 0 && s.num_placeholders >= 0 &&
                  s.num_placeholders <= kMaxPlaceholders && s.num_drafted_tokens >= 0 &&
                  s.num_drafted_tokens <= s.num_scheduled_tokens && s.max_draft_inputs >= 0 && s.made_drafts.is_valid();
         });
}

bool GroupTable::load_queues(Decoder& in) {
  std::vector<QueueEntry> entries;
  for (const auto& [id, group] : groups) {
    group->in_running = group->any(SequenceState::running);
    group->in_swapped = group->any(SequenceState::swapped);
    group->in_waiting = group->any(SequenceState::waiting);
    if (group->in_running) running.push_back(group.get());
    if (group->in_swapped) swapped.push_back(group.get());
    if (group->in_waiting) entries.push_back(group->entry);
  }
  const auto before = [&](const SequenceGroup* a, const SequenceGroup* b) {
    return waiting->runs_before(a->entry, b->entry);
  };
  std::ranges::sort(running, before);
  std::ranges::sort(swapped, before);
  return waiting->load(in, entries);
}

void BatchPlanner::save(Encoder& out) const {
  visit_fields(*this, [&](const auto&... fields) { (out.put(fields), ...); });
}

bool BatchPlanner::load(Decoder& in) {
  if (!visit_fields(*this, [&](auto&... fields) { return (in.get(fields) && ...); })) return false;
  if (next_step_ == 0 || next_to_pause_ < 0 || !drafts_.is_valid()) return false;
  return !pending_ || (pending_->step == last_planned() && is_valid(*pending_));
}

void SchedulerCore::save(Encoder& out) const {
  table_.save(out);
  batch_planner_.save(out);
  visit_fields(*this, [&](const auto&... fields) { (out.put(fields), ...); });
}

bool SchedulerCore::load(Decoder& in) {
  if (!table_.load(in, config_) || !batch_planner_.load(in)) return false;
  if (!visit_fields(*this, [&](auto&... fields) { return (in.get(fields) && ...); })) return false;
  StepId before = 0;
  for (const InFlightStep& step : in_flight_) {
    if (step.step <= std::exchange(before, step.step) || !is_valid_time(step.planned_us)) return false;
  }
  return std::max(before, last_completed_step_) <= batch_planner_.last_planned() && !check_invariants();
}

void SchedulerCore::compile_grammars(const std::function<grammar::SharedGrammar(const StructuredOutput&)>& compile) {
  for (const auto& [id, group] : table_.groups) {
    if (!group->spec->sampling.structured_outputs) continue;
    auto spec = std::make_shared<RequestSpec>(*group->spec);
    spec->grammar = compile(*spec->sampling.structured_outputs);
    group->spec = std::move(spec);
    group->decoding->constraint()->set_grammar(group->spec, config_);
  }
}

const RequestSpec* SchedulerCore::spec_of(SequenceId sequence) const {
  const auto owner = table_.group_of.find(sequence);
  const SequenceGroup* group = owner == table_.group_of.end() ? nullptr : table_.find(owner->second);
  return group == nullptr ? nullptr : group->spec.get();
}

TokenIds SchedulerCore::forced_sent_to_row(SequenceId sequence) const {
  const auto owner = table_.group_of.find(sequence);
  const Sequence* s = owner == table_.group_of.end() ? nullptr : table_.find(table_.find(owner->second), sequence);
  if (s == nullptr) return {};
  const TokenIds& forced = s->ahead.forced;
  return {forced.begin(), forced.begin() + static_cast<std::ptrdiff_t>(s->num_forced_sent())};
}

std::vector<NewRow> SchedulerCore::sequences_with_kv() const {
  std::vector<NewRow> rows;
  for (const auto& [id, group] : table_.groups) {
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::running && s.state != SequenceState::swapped) continue;
      NewRow row{s.row, s.id, s.index, row_spec(*group, config_.eos_token_ids), s.output};
      // A row receives tokens that it does not sample itself with its next work.
      if (s.row >= 0) row.tokens_so_far.resize(std::min(s.num_row_tokens, s.output.size()));
      rows.push_back(std::move(row));
    }
  }
  std::ranges::sort(rows, {}, &NewRow::sequence);
  return rows;
}

}  // namespace pagoda::scheduling
