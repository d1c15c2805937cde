#include "engine/scheduling/batch_planner.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

bool runs_prompt(const SequenceGroup& group) {
  return std::ranges::any_of(group.sequences, [&](const Sequence& s) {
    return s.state == SequenceState::running && s.runs_prompt(group.runnable_tokens(s));
  });
}

/// Returns whether all groups that could decode now wait for each result, while others of this kind are in flight. In
/// turns, each group would have half of a step's rows in every other step; together they have full steps. For the same
/// reason all wait when a sequence has drafts in flight: it would run in every other step only.
bool should_join_those_in_flight(const std::vector<SequenceGroup*>& running) {
  bool joins = false;
  bool all_depend = true;
  for (const SequenceGroup* group : running) {
    if (std::ranges::any_of(group->sequences, &Sequence::awaits_drafts)) return true;
    if (group->num_in_flight > 0) {
      joins = true;
    } else if (runs_prompt(*group)) {
      all_depend = false;
    }
    all_depend &= group->depends_on_results();
  }
  return joins && all_depend;
}

/// Returns the number of these sequences that may run their next token.
std::int32_t count_decoding(const SequenceGroup& group, std::span<const Sequence> sequences) {
  std::int32_t count = 0;
  for (const Sequence& s : sequences) {
    const std::int32_t tokens = s.state == SequenceState::running ? group.runnable_tokens(s) : 0;
    count += tokens > 0 && !s.runs_prompt(tokens) ? 1 : 0;
  }
  return count;
}

/// Calls `visit` with all sequences of a group that run together: with each that is independent, or with all.
template <class Visit>
void visit_together(const SequenceGroup& group, const Visit& visit) {
  const std::span<const Sequence> sequences(group.sequences);
  if (!group.decoding->has_independent_sequences()) return visit(sequences);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].state == SequenceState::running) visit(sequences.subspan(i, 1));
  }
}

}  // namespace

std::optional<MemoryRequest> BatchPlanner::next(TimeUs now, StepId last_completed,
                                                std::span<const InFlightStep> in_flight) {
  if (pending_ || (!changed_ && !table_.pending_updates.must_be_sent())) return std::nullopt;

  const bool steps_in_flight = !in_flight.empty();
  MemoryRequest plan;
  shares_.clear();
  rows_.clear();
  num_partial_long_prompts_ = 0;
  logprobs_left_ = kMaxPromptLogprobsOfStep;
  choose_adapters();
  plan.step = next_step_;
  plan.last_completed_step = last_completed;
  plan.costs = {cost_.recompute_us(1), cost_.swap_us(config_.block_bytes)};
  count_running(in_flight);
  plan.token_budget = step_budget();
  plan_drafts(plan.token_budget);
  // Without chunked prefill, whole prompts go first, in steps of their own.
  const SequenceGroup* solo = table_.solo_group();
  const bool in_own_steps = !config_.enable_chunked_prefill && table_.swapped.empty() && solo == nullptr;
  // A head without rows is visited, too, so that no swapped group behind it comes in. But nothing makes room for it.
  const bool visits_queue =
      admission_wanted(now, steps_in_flight) && !(in_own_steps && decodes_first_ && !table_.running.empty());
  const bool may_admit = visits_queue && head_has_rows();
  bool prompts_only = in_own_steps && may_admit;
  const auto swapped = swapped_in_order();
  std::int32_t used = prompts_only ? 0 : add_running_candidates(plan, swapped, may_admit);
  // A group that is to run alone begins when the steps that were in flight before have ended.
  const bool solo_waits = solo != nullptr && !solo->in_running && steps_in_flight;
  if (config_.enable_chunked_prefill && table_.quarantine.is_empty()) {
    plan.long_prompt_tokens = max_short_prompt_tokens();
    plan.max_partial_long_prompts = std::max(0, config_.max_partial_long_prompts - num_partial_long_prompts_);
  }
  add_incoming_candidates(plan, swapped, used, visits_queue && !solo_waits);
  if (solo != nullptr) {
    let_all_give_way_to(*solo, plan);
  } else if (!prompts_only) {
    let_less_urgent_give_way(plan, swapped, !table_.head_of_queue() || delay_has_passed(now, steps_in_flight));
  }
  if (prompts_only && plan.waiting.empty()) {
    prompts_only = false;
    used = add_running_candidates(plan, swapped, may_admit);
  }

  const bool decodes_alone = plan.swapped.empty() && plan.waiting.empty();
  const bool changes_nothing = used == 0 && !table_.pending_updates.must_be_sent() && plan.num_preempted_for_rows == 0;
  const bool joins_others =
      used > 0 && steps_in_flight && !config_.has_stages() && should_join_those_in_flight(table_.running);
  const bool waits = decodes_alone && (changes_nothing || joins_others);
  if (waits) {
    changed_ = false;
    return std::nullopt;
  }
  table_.move_updates_into(plan);
  ++next_step_;
  changed_ = false;
  expect_answer(plan, prompts_only);
  return plan;
}

bool BatchPlanner::may_draft() const {
  // The tokens of two steps, and a block for each row in them that is not full.
  const std::int64_t most = std::int64_t{config_.layout.num_groups()} * 2 *
                            (config_.layout.table_size(config_.max_num_batched_tokens) + table_.rows_reserved);
  return !config_.has_stages() && !table_.head_of_queue() && table_.swapped.empty() && available_blocks_ >= most;
}

void BatchPlanner::plan_drafts(std::int32_t token_budget) {
  DraftPlanner::Step step{.num_tokens = num_prompts_ > 0 ? token_budget : num_decoding_,
                          .max_drafts = may_draft() ? config_.samples_per_step() - table_.rows_reserved : 0,
                          .may_run = [this](const SequenceGroup& group) { return may_run(group); }};
  if (config_.target_step_us > 0) {
    step.max_drafts =
        std::min(step.max_drafts, std::max(0, static_cast<std::int32_t>(tokens_in_target()) - step.num_tokens));
  }
  drafts_.plan(step);
}

bool BatchPlanner::admission_wanted(TimeUs now, bool steps_in_flight) const {
  if (!table_.head_of_queue()) return false;
  // Running sequences pause, so no delay would ever end.
  return table_.solo_group() != nullptr || delay_has_passed(now, steps_in_flight);
}

bool BatchPlanner::head_has_rows() const {
  return table_.solo_group() != nullptr || first_of_queue()->rows_wanted() <= num_rows_for_new();
}

const SequenceGroup* BatchPlanner::first_of_queue() const {
  // A group on trial goes first, at whatever place of the queue it is.
  for (const RequestId id : table_.quarantine.on_trial()) {
    const SequenceGroup* group = table_.find(id);
    if (group != nullptr && group->in_waiting && !table_.quarantine.holds_back(id)) return group;
  }
  const auto head = table_.head_of_queue();
  return head ? table_.groups.at(*head).get() : nullptr;
}

double BatchPlanner::tokens_in_target() const {
  return step_time_curve_.tokens_within(static_cast<double>(config_.target_step_us) / step_lateness_.factor_of_mean());
}

double BatchPlanner::tokens_in_stretch() const {
  if (config_.max_stretch == 0) return config_.max_num_batched_tokens;
  const double times = config_.max_stretch / step_lateness_.factor_of_mean();
  return step_time_curve_.tokens_within(times * step_time_curve_.us_of(num_decoding_));
}

std::int32_t BatchPlanner::rows_within_target() const {
  const std::int32_t free = table_.num_free_rows();
  const SequenceGroup* first = first_of_queue();
  if (config_.target_step_us == 0 || first == nullptr || table_.solo_group() != nullptr) return free;
  const double tokens = tokens_in_target() * config_.num_stages;  // rows decode in one step of so many
  const double rows = std::min<double>(config_.max_num_seqs, tokens * (kPromptShare - 1) / kPromptShare);
  const std::int32_t more = static_cast<std::int32_t>(rows) - table_.rows_reserved;
  return std::min(free, table_.rows_reserved == 0 ? std::max(more, first->rows_wanted()) : more);
}

std::int32_t BatchPlanner::num_rows_for_new() const {
  return std::max(0, rows_within_target());
}

bool BatchPlanner::delay_has_passed(TimeUs now, bool steps_in_flight) const {
  if (config_.delay_factor == 0 || (table_.running.empty() && !steps_in_flight)) return true;
  const TimeUs arrival = table_.groups.at(*table_.head_of_queue())->entry.arrival_us;
  return static_cast<double>(now - arrival) > config_.delay_factor * static_cast<double>(last_prompt_step_us_);
}

void BatchPlanner::count_running(std::span<const InFlightStep> in_flight) {
  num_decoding_ = num_prompts_ = num_long_prompts_ = 0;
  for (const SequenceGroup* group : table_.running) {
    for (const Sequence& s : group->sequences) {
      const std::int32_t tokens = s.state == SequenceState::running ? group->runnable_tokens(s) : 0;
      if (tokens <= 0) continue;
      ++(s.runs_prompt(tokens) ? num_prompts_ : num_decoding_);
      num_long_prompts_ += s.runs_prompt(tokens) && is_long(tokens) ? 1 : 0;
    }
  }
  if (!config_.has_stages()) return;
  set_others_aside(in_flight);
}

void BatchPlanner::set_others_aside(std::span<const InFlightStep> in_flight) {
  struct Candidate {
    StepId last_step = 0;  ///< the last step that ran it
    std::size_t index = 0;
    std::int32_t num_decoding = 0;
  };
  std::vector<Candidate> candidates;
  for (const SequenceGroup* group : table_.running) {
    if (!may_run(*group)) continue;
    visit_together(*group, [&](std::span<const Sequence> sequences) {
      const std::int32_t count = count_decoding(*group, sequences);
      if (count == 0) return;
      const StepId last = std::ranges::max_element(sequences, {}, &Sequence::last_step)->last_step;
      candidates.push_back({last, candidates.size(), count});
    });
  }
  const std::int32_t share = share_of_step(std::exchange(num_decoding_, 0), in_flight);
  set_aside_.assign(candidates.size(), true);
  std::ranges::stable_sort(candidates, {}, &Candidate::last_step);
  for (const Candidate& candidate : candidates) {
    if (num_decoding_ >= share) break;
    num_decoding_ += candidate.num_decoding;
    set_aside_[candidate.index] = false;
  }
}

/// The shares of num_stages steps differ by at most one, and together hold all sequences. So steps that are too large,
/// as after a burst of prompts, get smaller. Where a step ends before the next one is planned, all sequences are
/// candidates for each step, and take turns.
std::int32_t BatchPlanner::share_of_step(std::int32_t num_runnable, std::span<const InFlightStep> in_flight) const {
  std::int32_t all = num_runnable;
  std::vector<std::int32_t> others;
  others.reserve(in_flight.size());
  for (const InFlightStep& step : in_flight) {
    std::int32_t decoding = 0;
    for (const WorkRef& work : step.work) decoding += work.late || work.dropped ? 0 : work.num_samples;
    others.push_back(decoding);
    all += decoding;
  }
  const std::int32_t share = all / config_.num_stages;
  const auto num_larger = std::ranges::count_if(others, [&](std::int32_t decoding) { return decoding > share; });
  return std::max(1, share + (num_larger < all % config_.num_stages ? 1 : 0));
}

bool BatchPlanner::may_run(const SequenceGroup& group) const {
  const SequenceGroup* solo = table_.solo_group();
  return (solo == nullptr || &group == solo) && adapters_.contains(group.spec->adapter.id);
}

std::int32_t BatchPlanner::step_budget() const {
  double budget = config_.max_num_batched_tokens;
  if (num_decoding_ == 0 || !config_.enable_chunked_prefill) return config_.max_num_batched_tokens;
  if (config_.max_chunk_us > 0) {
    const double token_us = step_times_.us_per_token();
    const double chunk = token_us > 0 ? static_cast<double>(config_.max_chunk_us) / token_us : 0;
    const double in_time =
        std::min(num_decoding_ + chunk, table_.head_of_queue() || num_prompts_ > 0 ? tokens_in_stretch() : budget);
    // So that no decode pauses.
    const double for_prompts = std::max<double>(kMinChunk, num_decoding_ / (kPromptShare - 1) + 1);
    budget = std::min(budget, std::max({double{kMinBatch}, num_decoding_ + for_prompts, in_time}));
  }
  if (config_.target_step_us > 0) {
    budget = std::min(budget, std::max<double>(num_decoding_ + 1, tokens_in_target()));
  }
  return static_cast<std::int32_t>(budget);
}

/// Returns the number of decodes that pause in this step for prompts that run, or may start.
std::int32_t BatchPlanner::num_pausing(std::int32_t token_budget, bool may_admit) const {
  const std::int32_t too_many = num_decoding_ - (token_budget - token_budget / kPromptShare);
  if (too_many <= 0 || !config_.enable_chunked_prefill) return 0;
  const bool head_waits_for_memory = max_offers_ == 1;
  return (may_admit && !head_waits_for_memory) || num_prompts_ > 0 ? too_many : 0;
}

void BatchPlanner::choose_adapters() {
  adapters_ = StepAdapters(config_.max_adapters);
  if (config_.max_adapters == 0) return;
  if (const SequenceGroup* solo = table_.solo_group(); solo != nullptr) {
    adapters_.add(solo->spec->adapter.id);
    return;
  }
  for (const SequenceGroup* group : table_.running) adapters_.add(group->spec->adapter.id);
}

/// Only the first swapped group counts, so that few tokens stay unused while it waits for memory. It may still stay out
/// for its adapter, or because its last results have not come.
std::int32_t BatchPlanner::tokens_kept_for(std::span<const SequenceGroup* const> swapped, std::int32_t token_budget,
                                           std::int32_t chunk_budget) const {
  const auto next = std::ranges::find_if(
      swapped, [this](const SequenceGroup* group) { return !table_.quarantine.holds_back(group->entry.id); });
  if (next == swapped.end() || table_.solo_group() != nullptr) return 0;
  const SequenceGroup* head = first_of_queue();
  if (head != nullptr && !head_has_rows() && !table_.waiting->comes_in_before((*next)->entry, head->entry)) return 0;
  const std::int32_t tokens = (*next)->rows_wanted();
  const std::int32_t kept = std::max(0, token_budget + tokens - config_.max_num_batched_tokens);
  return tokens <= table_.num_free_rows() && kept < chunk_budget ? kept : 0;
}

std::int32_t BatchPlanner::add_running_candidates(MemoryRequest& plan, std::span<const SequenceGroup* const> swapped,
                                                  bool may_admit) {
  // Decodes come before prompt chunks, except the decodes whose turn it is to pause. None pauses to save time if there
  // is a target: the target forbids such a pause.
  const bool has_target = config_.target_step_us > 0;
  const std::int32_t pausing = num_pausing(has_target ? config_.max_num_batched_tokens : plan.token_budget, may_admit);
  const std::int32_t first_pausing = pausing == 0 ? 0 : next_to_pause_ % num_decoding_;
  if (pausing > 0) next_to_pause_ = first_pausing + pausing;
  std::int32_t chunk_budget = plan.token_budget - (num_decoding_ - pausing);
  chunk_budget -= tokens_kept_for(swapped, plan.token_budget, chunk_budget);
  const std::int32_t kept_for_prompts = num_prompts_ > 0 ? kMinChunk : 0;
  std::int32_t for_short =
      num_long_prompts_ > 0 ? tokens_for_short_prompts(chunk_budget, /*of_running=*/true, may_admit) : 0;
  const SequenceGroup* solo = table_.solo_group();
  std::int32_t decode = 0;       // number of the next decode
  std::size_t could_decode = 0;  // number of candidates before that could decode
  std::int32_t used = 0;
  bool pauses = false;
  bool set_aside = false;
  const auto tokens_of = [&](const SequenceGroup& group, const Sequence& s) {
    if ((solo != nullptr && &group != solo) || s.awaits_mask || !adapters_.contains(group.spec->adapter.id)) {
      pauses = true;
      return 0;
    }
    std::int32_t tokens = s.outgrew ? 0 : group.runnable_tokens(s);
    const bool runs_prompt = s.runs_prompt(tokens);
    const bool runs_long_prompt = runs_prompt && is_long(tokens);
    if (tokens > 1 && config_.layout.has_window())
      tokens = std::min(tokens, config_.layout.largest_chunk(group.length(s), config_.num_device_blocks));
    if (runs_prompt) {
      if (runs_long_prompt && config_.long_prefill_tokens > 0) tokens = std::min(tokens, config_.long_prefill_tokens);
      tokens = std::min(tokens, std::max(0, runs_long_prompt ? chunk_budget - for_short : chunk_budget));
      tokens = within_logprobs(group, tokens);
      chunk_budget -= tokens;
      if (!runs_long_prompt) for_short = std::max(0, for_short - tokens);
      num_partial_long_prompts_ += runs_long_prompt && tokens < group.runnable_tokens(s) ? 1 : 0;
      pauses |= tokens == 0;
    } else if (tokens > 0 && set_aside) {
      tokens = 0;
      pauses = true;
    } else if (tokens > 0 && pausing > 0 && (decode++ + num_decoding_ - first_pausing) % num_decoding_ < pausing) {
      tokens = 0;
      pauses = true;
    } else if (tokens > 1) {  // tokens that are known ahead share the time of prompts
      tokens = 1 + std::min(tokens - 1, std::max(0, chunk_budget - kept_for_prompts));
      chunk_budget -= tokens - 1;
    }
    return tokens;
  };
  // A candidate that runs nothing now is offered if it pauses or waits for its results: it may lose its memory to
  // candidates that are served before it. Otherwise two such groups could preempt themselves for each other forever.
  const auto add_candidate = [&](const SequenceGroup& group, std::span<const Sequence> sequences) {
    const auto first = static_cast<std::int32_t>(plan.needs.size());
    std::int32_t granted = 0;
    bool waits_for_results = false;
    pauses = false;
    const bool takes_turns = config_.has_stages() && may_run(group) && count_decoding(group, sequences) > 0;
    set_aside = takes_turns && set_aside_[could_decode++];
    for (const Sequence& s : sequences) {
      if (s.state != SequenceState::running) continue;
      const std::int32_t tokens = tokens_of(group, s);
      granted += tokens;
      waits_for_results |= tokens == 0 && (group.depends_on_results() || s.awaits_drafts());
      add_need(plan, s, tokens);
    }
    const auto count = static_cast<std::int32_t>(plan.needs.size()) - first;
    if (granted == 0 && !pauses && (group.num_in_flight == 0 || !waits_for_results)) {
      plan.needs.resize(static_cast<std::size_t>(first));
      shares_.resize(static_cast<std::size_t>(first));
      return;
    }
    used += granted;
    plan.running.push_back({group.entry.id, {first, count}, preemption_of(group)});
  };
  const auto add_group = [&](const SequenceGroup& group) {
    visit_together(group, [&](std::span<const Sequence> sequences) { add_candidate(group, sequences); });
  };
  plan.running.reserve(table_.running.size());
  plan.needs.reserve(table_.running.size());
  // A group that runs alone is served before the groups that pause for it.
  if (solo != nullptr && solo->in_running) add_group(*solo);
  for (const SequenceGroup* group : table_.running) {
    if (group != solo) add_group(*group);
  }
  return used;
}

void BatchPlanner::add_need(MemoryRequest& plan, const Sequence& sequence, std::int32_t num_tokens) {
  plan.needs.push_back({sequence.id, sequence.num_scheduled_tokens, num_tokens, 0});
  shares_.push_back(num_tokens > 0 && sequence.num_scheduled_tokens < sequence.num_admitted_tokens);
}

bool BatchPlanner::is_long(std::int32_t num_tokens) const {
  return config_.enable_chunked_prefill && num_tokens > max_short_prompt_tokens();
}

/// Limits `tokens` of a prompt to those whose log-probabilities have room in the results of this step, but to at least
/// one. Takes that room.
std::int32_t BatchPlanner::within_logprobs(const SequenceGroup& group, std::int32_t tokens) {
  const std::int64_t each = group.logprobs_of_prompt_token();
  if (each == 0 || tokens == 0) return tokens;
  tokens = static_cast<std::int32_t>(std::min<std::int64_t>(tokens, std::max<std::int64_t>(1, logprobs_left_ / each)));
  logprobs_left_ -= std::min(logprobs_left_, tokens * each);
  return tokens;
}

std::int32_t BatchPlanner::max_short_prompt_tokens() const {
  return config_.long_prefill_tokens > 0 ? config_.long_prefill_tokens : config_.max_num_batched_tokens / 2;
}

std::int32_t BatchPlanner::tokens_for_short_prompts(std::int32_t budget, bool of_running, bool of_waiting) const {
  constexpr int kMaxVisited = 64;
  const std::int32_t most = std::max(0, budget / 2);
  std::int32_t tokens = 0;
  for (const SequenceGroup* group : table_.running) {
    if (!of_running || tokens >= most) break;
    for (const Sequence& s : group->sequences) {
      const std::int32_t left = s.state == SequenceState::running ? group->runnable_tokens(s) : 0;
      if (s.runs_prompt(left) && !is_long(left)) tokens += std::min(left, most);
    }
  }
  const bool head_waits_for_memory = max_offers_ == 1;
  if (!of_waiting || head_waits_for_memory) return std::min(tokens, most);
  int visited = 0;
  table_.waiting->visit_in_order([&](RequestId id) {
    if (table_.quarantine.holds_back(id)) return true;
    const SequenceGroup& group = *table_.groups.at(id);
    for (const Sequence& s : group.sequences) {
      if (s.state != SequenceState::waiting || is_long(group.length(s))) continue;
      tokens += std::min(group.length(s), most);
    }
    return tokens < most && ++visited < kMaxVisited;
  });
  return std::min(tokens, most);
}

PreemptionMode BatchPlanner::preemption_of(const SequenceGroup& group) const {
  if (!config_.can_swap || config_.preemption == PreemptionPolicy::recompute) return PreemptionMode::recompute;
  const bool is_search = !group.decoding->has_independent_sequences() && group.sequences.size() > 1;
  if (config_.preemption == PreemptionPolicy::swap || is_search) return PreemptionMode::swap;
  return PreemptionMode::cheaper;
}

void BatchPlanner::expect_answer(const MemoryRequest& plan, bool prompts_only) {
  PendingGrant pending;
  pending.step = plan.step;
  pending.token_budget = plan.token_budget;
  pending.running = plan.running;
  pending.swapped = plan.swapped;
  pending.needs = plan.needs;
  pending.prompts_only = prompts_only;
  pending.shares = std::exchange(shares_, {});
  for (std::size_t i = 0; i < plan.waiting.size(); ++i) {
    pending.waiting.push_back({plan.waiting[i].group, plan.waiting[i].sequence, rows_[i]});
  }
  pending_ = std::move(pending);
}

PendingGrant BatchPlanner::take_pending() {
  PendingGrant pending = std::move(*pending_);
  pending_.reset();
  // A plan that runs nothing is not made again, unless it offered prompts alone or an event happens meanwhile.
  changed_ |= pending.prompts_only && !table_.running.empty();
  return pending;
}

/// Where memory had no room for more sequences, offering many of them again would cost time without success.
void BatchPlanner::limit_offers(const PendingGrant& pending, const MemoryGrant& answer) {
  available_blocks_ = answer.memory.device_blocks_free + answer.memory.device_blocks_cached;
  const auto has_answer = [](const AdmissionOutcome& outcome) {
    return outcome.status != AllocStatus::later || outcome.is_passed_over;
  };
  max_offers_ = kAllOffers;
  if (std::ranges::all_of(answer.waiting, has_answer)) return;
  std::int32_t used = 0;
  for (std::size_t i = 0; i < answer.running.size(); ++i) {
    if (answer.running[i] == RunningOutcome::scheduled) used += pending.num_tokens(pending.running[i].sequences);
  }
  for (std::size_t i = 0; i < answer.swapped.size(); ++i) {
    if (answer.swapped[i] == AllocStatus::ok) used += pending.num_tokens(pending.swapped[i].sequences);
  }
  std::size_t admitted = 0;
  for (const AdmissionOutcome& outcome : answer.waiting) {
    used += outcome.num_new_tokens;
    admitted += outcome.status == AllocStatus::ok ? 1 : 0;
  }
  if (used < pending.token_budget) max_offers_ = std::max<std::size_t>(1, 2 * admitted);
}

void BatchPlanner::on_applied(const PendingGrant& pending, bool anything_runs) {
  // When a step of prompts alone ran nothing, running sequences have their turn.
  decodes_first_ = pending.prompts_only && !anything_runs;
  changed_ |= anything_runs;
}

void BatchPlanner::discard_pending(bool memory_lost) {
  if (!pending_) return;
  pending_->discarded = true;
  pending_->memory_lost |= memory_lost;
}

void BatchPlanner::on_capacity_freed() {
  max_offers_ = kAllOffers;
  decodes_first_ = false;
  changed_ = true;
}

void BatchPlanner::step_measured(const InFlightStep& step, TimeUs duration_us, TimeUs draft_us) {
  drafts_.runs_measured(step, draft_us);
  duration_us -= draft_us;
  const std::int64_t num_tokens = step.num_tokens;
  if (step.num_prompt_tokens > 0) last_prompt_step_us_ = duration_us;
  step_times_.step_measured(num_tokens, duration_us);
  // Steps of prompts alone delay no decode, and take longer the more tokens the prompts already have.
  if (num_tokens > step.num_prompt_tokens)
    step_lateness_.step_measured(step_time_curve_.us_of(num_tokens), duration_us);
  step_time_curve_.step_measured(num_tokens, duration_us);
  cost_.step_measured(num_tokens, step.num_prompt_tokens, duration_us);
}

}  // namespace pagoda::scheduling
