#include "engine/scheduling/step_planning.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

/// Running sequences that may run their next token: not those that wait for a result.
std::int32_t num_decoding_of(const SequenceGroup& group) {
  std::int32_t count = 0;
  for (const Sequence& s : group.sequences) count += s.state == SequenceState::running && group.decodes(s) ? 1 : 0;
  return count;
}

/// Rows that must be free for some of its sequences to begin.
std::int32_t rows_wanted_by(const SequenceGroup& group) {
  return group.rows_reserved > 0 ? 0 : group.decoding->num_rows(group);
}

bool runs_prompt(const SequenceGroup& group) {
  return std::ranges::any_of(group.sequences, [&](const Sequence& s) {
    return s.state == SequenceState::running && group.runnable_tokens(s) > 1 && !group.decodes(s);
  });
}

/// Whether all that could decode now are groups that wait for each result, while others of the kind are in flight:
/// taking turns they would each have half a step's rows in every other step; together they have whole ones.
bool should_join_those_in_flight(const std::vector<SequenceGroup*>& running) {
  bool joins = false;
  for (const SequenceGroup* group : running) {
    if (!group->depends_on_results()) return false;
    if (group->num_in_flight > 0) {
      joins = true;
    } else if (runs_prompt(*group)) {
      return false;
    }
  }
  return joins;
}

}  // namespace

std::optional<PlanStep> StepPlanning::next(TimeUs now, StepId last_completed, bool steps_in_flight) {
  if (pending_ || (!changed_ && !table_.news.must_be_told())) return std::nullopt;

  drop_drafts();
  PlanStep plan;
  shares_.clear();
  plan.step = next_step_;
  plan.last_completed_step = last_completed;
  plan.costs = {cost_.recompute_us(1), cost_.swap_us(config_.block_bytes)};
  const std::int32_t decoding = num_decoding();
  plan.token_budget = step_budget(decoding);
  std::int32_t rows = num_rows_for_new();
  // Without chunked prefill whole prompts go first, in steps of their own.
  const bool in_own_steps = !config_.enable_chunked_prefill && table_.swapped.empty();
  const bool may_admit =
      admission_wanted(now, steps_in_flight) && !(in_own_steps && decodes_first_ && !table_.running.empty());
  bool prompts_only = in_own_steps && may_admit;
  std::int32_t used = prompts_only ? 0 : add_running_candidates(plan, decoding, may_admit);
  rows = std::max(0, rows - add_swapped_candidates(plan, table_.num_free_rows()));
  // What comes back is not a prompt: it fits whatever prompts there are.
  for (const SwapInCandidate& group : plan.swapped) plan.token_budget += group.sequences.count;
  plan.token_budget = std::min(plan.token_budget, config_.max_num_batched_tokens);
  // Who is to run alone begins when what was in flight before it has ended.
  const SequenceGroup* alone = table_.suspect();
  const bool alone_waits = alone != nullptr && !alone->in_running && steps_in_flight;
  if (may_admit && !alone_waits) add_waiting_candidates(plan, plan.token_budget - used, rows);
  if (prompts_only && plan.waiting.empty()) {
    prompts_only = false;
    used = add_running_candidates(plan, decoding, may_admit);
  }

  const bool decodes_alone = plan.swapped.empty() && plan.waiting.empty();
  const bool waits = decodes_alone && (used == 0 ? !table_.news.must_be_told()
                                                 : steps_in_flight && should_join_those_in_flight(table_.running));
  if (waits) {
    changed_ = false;
    return std::nullopt;
  }
  table_.tell(plan);
  ++next_step_;
  changed_ = false;
  expect_answer(plan, prompts_only);
  return plan;
}

bool StepPlanning::may_draft() const {
  const std::int64_t most_needed = std::int64_t{config_.max_num_batched_tokens} + config_.max_num_seqs;
  return config_.pipeline_depth == 2 && !table_.head_of_queue() && table_.swapped.empty() &&
         available_blocks_ >= most_needed;
}

/// Each draft takes the place that one more row would have in a step's samples.
void StepPlanning::drop_drafts() {
  auto room = static_cast<std::size_t>(may_draft() ? table_.num_free_rows() : 0);
  for (SequenceGroup* group : table_.running) {
    for (Sequence& s : group->sequences) {
      if (s.waits) continue;
      s.drafts.resize(std::min(s.drafts.size(), room));
      room -= s.drafts.size();
    }
  }
}

bool StepPlanning::admission_wanted(TimeUs now, bool steps_in_flight) const {
  if (!table_.head_of_queue() || !delay_has_passed(now, steps_in_flight)) return false;
  return table_.suspect() != nullptr || rows_wanted_by(*first_of_queue()) <= num_rows_for_new();
}

const SequenceGroup* StepPlanning::first_of_queue() const {
  // A suspect goes first, wherever it stands.
  if (const SequenceGroup* suspect = table_.suspect(); suspect != nullptr && suspect->in_waiting) return suspect;
  const auto head = table_.head_of_queue();
  return head ? table_.groups.at(*head).get() : nullptr;
}

double StepPlanning::tokens_in_target() const {
  return step_time_curve_.tokens_within(static_cast<double>(config_.target_step_us) / step_lateness_.times_the_mean());
}

double StepPlanning::tokens_in_stretch(std::int32_t decoding) const {
  if (config_.most_stretch == 0) return config_.max_num_batched_tokens;
  const double times = config_.most_stretch / step_lateness_.times_the_mean();
  return step_time_curve_.tokens_within(times * step_time_curve_.us_of(decoding));
}

std::int32_t StepPlanning::num_rows_for_new() const {
  const std::int32_t free = table_.num_free_rows();
  const SequenceGroup* first = first_of_queue();
  if (config_.target_step_us == 0 || first == nullptr) return free;
  const double tokens = tokens_in_target();
  const double rows = std::min<double>(config_.max_num_seqs, tokens * (kPromptShare - 1) / kPromptShare);
  const std::int32_t more = std::max(0, static_cast<std::int32_t>(rows) - table_.rows_reserved);
  return std::min(free, table_.rows_reserved == 0 ? std::max(more, rows_wanted_by(*first)) : more);
}

bool StepPlanning::delay_has_passed(TimeUs now, bool steps_in_flight) const {
  if (config_.delay_factor == 0 || (table_.running.empty() && !steps_in_flight)) return true;
  const TimeUs arrival = table_.groups.at(*table_.head_of_queue())->entry.arrival_us;
  return static_cast<double>(now - arrival) > config_.delay_factor * static_cast<double>(last_prompt_step_us_);
}

std::int32_t StepPlanning::num_decoding() const {
  std::int32_t count = 0;
  for (const SequenceGroup* group : table_.running) count += num_decoding_of(*group);
  return count;
}

bool StepPlanning::runs_prompts() const {
  return std::ranges::any_of(table_.running, [](const SequenceGroup* group) { return runs_prompt(*group); });
}

std::int32_t StepPlanning::step_budget(std::int32_t decoding) const {
  double budget = config_.max_num_batched_tokens;
  if (decoding == 0 || !config_.enable_chunked_prefill) return config_.max_num_batched_tokens;
  if (config_.max_chunk_us > 0) {
    const double token_us = step_times_.us_per_token();
    const double chunk = token_us > 0 ? static_cast<double>(config_.max_chunk_us) / token_us : 0;
    const double in_time =
        std::min(decoding + chunk, table_.head_of_queue() || runs_prompts() ? tokens_in_stretch(decoding) : budget);
    const double for_prompts =
        std::max<double>(kLeastChunk, decoding / (kPromptShare - 1) + 1);  // so that nobody pauses
    budget = std::min(budget, std::max({double{kLeastBatch}, decoding + for_prompts, in_time}));
  }
  if (config_.target_step_us > 0) {
    budget = std::min(budget, std::max<double>(decoding + 1, tokens_in_target()));
  }
  return static_cast<std::int32_t>(budget);
}

/// Decodes that make room in this step for prompts that run, or may start.
std::int32_t StepPlanning::num_pausing(std::int32_t token_budget, std::int32_t decoding, bool may_admit) const {
  const std::int32_t too_many = decoding - (token_budget - token_budget / kPromptShare);
  if (too_many <= 0 || !config_.enable_chunked_prefill) return 0;
  const bool head_waits_for_memory = most_offers_ == 1;
  return (may_admit && !head_waits_for_memory) || runs_prompts() ? too_many : 0;
}

std::int32_t StepPlanning::add_running_candidates(PlanStep& plan, std::int32_t decoding, bool may_admit) {
  // Decodes come before prompt chunks, but for those whose turn it is to pause.
  // Nobody pauses for time's sake: the pause is what a target forbids.
  const bool has_target = config_.target_step_us > 0;
  const std::int32_t pausing =
      num_pausing(has_target ? config_.max_num_batched_tokens : plan.token_budget, decoding, may_admit);
  const std::int32_t first_pausing = pausing == 0 ? 0 : next_to_pause_ % decoding;
  if (pausing > 0) next_to_pause_ = first_pausing + pausing;
  std::int32_t chunk_budget = plan.token_budget - (decoding - pausing);
  const std::int32_t kept_for_prompts = runs_prompts() ? kLeastChunk : 0;
  std::int32_t decode = 0;  // number of the next one
  std::int32_t used = 0;
  for (const SequenceGroup* group : table_.running) {
    const auto first = static_cast<std::int32_t>(plan.needs.size());
    std::int32_t granted = 0;
    bool pauses = false;
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::running) continue;
      std::int32_t tokens = group->grew_too_large ? 0 : group->runnable_tokens(s);
      if (config_.max_chunk_tokens > 0) tokens = std::min(tokens, config_.max_chunk_tokens);
      if (tokens > 1 && !group->decodes(s)) {
        tokens = std::min(tokens, chunk_budget);
        chunk_budget -= tokens;
        pauses |= tokens == 0;
      } else if (tokens > 0 && pausing > 0 && (decode++ + decoding - first_pausing) % decoding < pausing) {
        tokens = 0;
        pauses = true;
      } else if (tokens > 1) {  // what is known ahead shares the time of prompts
        tokens = 1 + std::min(tokens - 1, std::max(0, chunk_budget - kept_for_prompts));
        chunk_budget -= tokens - 1;
      }
      granted += tokens;
      add_need(plan, s, tokens);
    }
    if (granted == 0) {
      plan.needs.resize(static_cast<std::size_t>(first));
      shares_.resize(static_cast<std::size_t>(first));
      // It pauses, or waits for its result: those served before it may take its memory. Else two such groups could
      // preempt themselves for each other's sake forever.
      if (!pauses && (group->num_in_flight == 0 || !group->waits_for_results())) continue;
    }
    used += granted;
    const auto count = static_cast<std::int32_t>(plan.needs.size()) - first;
    plan.running.push_back({group->entry.id, {first, count}, preemption_of(*group)});
  }
  return used;
}

void StepPlanning::add_need(PlanStep& plan, const Sequence& sequence, std::int32_t num_tokens) {
  plan.needs.push_back({sequence.id, sequence.num_scheduled_tokens, num_tokens, 0});
  shares_.push_back(num_tokens > 0 && sequence.num_scheduled_tokens < sequence.num_admitted_tokens);
}

std::int32_t StepPlanning::add_swapped_candidates(PlanStep& plan, std::int32_t rows) {
  std::int32_t rows_taken = 0;
  for (const SequenceGroup* group : table_.swapped) {
    const std::int32_t rows_wanted = rows_wanted_by(*group);
    if (group->num_in_flight > 0 || rows - rows_taken < rows_wanted)
      break;  // results to come, or no rows: in order only
    rows_taken += rows_wanted;
    const auto first = static_cast<std::int32_t>(plan.needs.size());
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::swapped) continue;
      // A chunk continues in the next step; what comes back now runs one token at most.
      add_need(plan, s, std::min(group->runnable_tokens(s), 1));
    }
    plan.swapped.push_back({group->entry.id, {first, static_cast<std::int32_t>(plan.needs.size()) - first}});
  }
  return rows_taken;
}

void StepPlanning::add_waiting_candidates(PlanStep& plan, std::int32_t token_budget, std::int32_t rows) {
  const SequenceGroup* alone = table_.suspect();
  if (alone != nullptr && !alone->in_waiting) return;
  std::int32_t tokens = 0;
  table_.waiting->visit_in_order([&](RequestId id) {
    if (alone != nullptr && alone->entry.id != id) return true;
    SequenceGroup& group = *table_.groups.at(id);
    // Preempted with results still to come: nobody may overtake it. Of several sequences that go on by themselves, some
    // may run meanwhile.
    const bool goes_on_together = group.sequences.size() == 1 || !group.decoding->keeps_tokens_of_lost_kv();
    if (group.num_in_flight > 0 && goes_on_together) return false;
    // Some of its sequences wait, others are on the host: these come first.
    if (group.in_swapped && std::ranges::find(plan.swapped, id, &SwapInCandidate::group) == plan.swapped.end())
      return false;
    std::int32_t rows_wanted = rows_wanted_by(group);
    for (Sequence& s : group.sequences) {
      if (s.state != SequenceState::waiting) continue;
      if (s.num_placeholders > 0) return false;
      // Each computes a token at least: its last, whatever is cached.
      if (tokens >= token_budget || rows < rows_wanted || plan.waiting.size() >= most_offers_) return false;
      if (!s.output.empty() && !s.recompute_tokens) {
        auto all = std::make_shared<TokenIds>(*group.spec->prompt);
        all->insert(all->end(), s.output.begin(), s.output.end());
        s.recompute_tokens = std::move(all);
      }
      AdmissionCandidate candidate;
      candidate.group = id;
      candidate.sequence = s.id;
      candidate.tokens = s.recompute_tokens ? s.recompute_tokens : group.spec->prompt;
      candidate.cache_salt = group.spec->cache_salt;
      // With what it has generated a sequence may be longer than a step that its window and the pool have room for.
      candidate.may_chunk = config_.enable_chunked_prefill || (config_.max_chunk_tokens > 0 && !s.output.empty());
      candidate.use_prefix_cache = group.next_prompt_logprob >= group.prompt_len();
      ++tokens;
      rows -= std::exchange(rows_wanted, 0);
      plan.waiting.push_back(std::move(candidate));
    }
    return true;
  });
}

PreemptionMode StepPlanning::preemption_of(const SequenceGroup& group) const {
  if (!config_.can_swap || config_.preemption == PreemptionPolicy::recompute) return PreemptionMode::recompute;
  if (config_.preemption == PreemptionPolicy::swap || group.sequences.size() > 1) return PreemptionMode::swap;
  return PreemptionMode::cheaper;
}

void StepPlanning::expect_answer(const PlanStep& plan, bool prompts_only) {
  PendingPlan pending;
  pending.step = plan.step;
  pending.token_budget = plan.token_budget;
  pending.running = plan.running;
  pending.swapped = plan.swapped;
  pending.needs = plan.needs;
  pending.prompts_only = prompts_only;
  pending.shares = std::exchange(shares_, {});
  for (const AdmissionCandidate& c : plan.waiting) pending.waiting.push_back({c.group, c.sequence});
  pending_ = std::move(pending);
}

PendingPlan StepPlanning::take_pending() {
  PendingPlan pending = std::move(*pending_);
  pending_.reset();
  // A plan that runs nothing need not be made again, unless it asked for prompts alone or something happens meanwhile.
  changed_ |= pending.prompts_only && !table_.running.empty();
  return pending;
}

/// Where the memory had no room for more, offering many again costs time for nothing.
void StepPlanning::limit_offers(const PendingPlan& pending, const StepPlan& answer) {
  available_blocks_ = answer.memory.device_blocks_free + answer.memory.device_blocks_cached;
  std::int32_t used = 0;
  const auto add = [&](Range range) {
    for (std::int32_t i = 0; i < range.count; ++i)
      used += pending.needs[static_cast<std::size_t>(range.first + i)].num_new_tokens;
  };
  for (std::size_t i = 0; i < answer.running.size(); ++i) {
    if (answer.running[i] == RunningOutcome::scheduled) add(pending.running[i].sequences);
  }
  for (std::size_t i = 0; i < answer.swapped.size(); ++i) {
    if (answer.swapped[i] == AllocStatus::ok) add(pending.swapped[i].sequences);
  }
  std::size_t admitted = 0;
  bool all_answered = true;
  for (const AdmissionOutcome& outcome : answer.waiting) {
    used += outcome.num_new_tokens;
    admitted += outcome.status == AllocStatus::ok ? 1 : 0;
    all_answered &= outcome.status != AllocStatus::later;
  }
  most_offers_ = all_answered || used >= pending.token_budget ? kAllOffers : std::max<std::size_t>(1, 2 * admitted);
}

void StepPlanning::was_applied(const PendingPlan& pending, bool anything_runs) {
  // Where prompts have steps of their own, they take turns with what runs when nothing came of them.
  decodes_first_ = pending.prompts_only && !anything_runs;
  changed_ |= anything_runs;
}

void StepPlanning::discard_pending(bool memory_lost) {
  if (!pending_) return;
  pending_->discarded = true;
  pending_->memory_lost |= memory_lost;
}

void StepPlanning::something_was_freed() {
  most_offers_ = kAllOffers;
  decodes_first_ = false;
  changed_ = true;
}

void StepPlanning::step_measured(std::int64_t num_tokens, std::int64_t num_prompt_tokens, TimeUs duration_us) {
  if (num_prompt_tokens > 0) last_prompt_step_us_ = duration_us;
  step_times_.step_measured(num_tokens, duration_us);
  // Steps of prompts alone hold up nobody, and take longer the more lies before them.
  if (num_tokens > num_prompt_tokens) step_lateness_.step_measured(step_time_curve_.us_of(num_tokens), duration_us);
  step_time_curve_.step_measured(num_tokens, duration_us);
  cost_.step_measured(num_tokens, num_prompt_tokens, duration_us);
}

}  // namespace pagoda::scheduling
