// The planning half of SchedulerCore: what the block manager is asked to fit into the next step.

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::scheduling {

bool SchedulerCore::admission_wanted(TimeUs now) const {
  const bool engine_is_empty = running_.empty() && swapped_.empty() && in_flight_.empty();
  return waiting_->size() > 0 && (!admission_blocked_ || engine_is_empty) && rows_reserved_ < config_.max_num_seqs &&
         delay_has_passed(now);
}

bool SchedulerCore::delay_has_passed(TimeUs now) const {
  if (config_.delay_factor == 0 || (running_.empty() && in_flight_.empty())) return true;
  TimeUs arrival = now;
  waiting_->visit_in_order([&](RequestId id) {
    arrival = groups_.at(id)->entry.arrival_us;
    return false;
  });
  return static_cast<double>(now - arrival) > config_.delay_factor * static_cast<double>(last_prompt_step_us_);
}

std::optional<PlanStep> SchedulerCore::next_plan(TimeUs now) {
  if (pending_ || static_cast<std::int32_t>(in_flight_.size()) >= config_.pipeline_depth) return std::nullopt;
  if (!changed_ && releases_.empty()) return std::nullopt;

  PlanStep plan;
  plan.step = next_step_;
  plan.last_completed_step = last_completed_step_;
  const std::int32_t decoding = num_decoding();
  plan.token_budget = step_budget(decoding);
  std::int32_t rows = config_.max_num_seqs - rows_reserved_;
  // Without chunked prefill whole prompts go first, in steps of their own.
  const bool may_admit = admission_wanted(now);
  const bool prompts_only = !config_.enable_chunked_prefill && swapped_.empty() && may_admit;
  std::int32_t used = prompts_only ? 0 : add_running_candidates(plan, decoding);
  rows -= add_swapped_candidates(plan, rows);
  // What comes back is not a prompt: it fits whatever prompts there are.
  for (const SwapInCandidate& group : plan.swapped) plan.token_budget += group.sequences.count;
  plan.token_budget = std::min(plan.token_budget, config_.max_num_batched_tokens);
  if (may_admit) add_waiting_candidates(plan, plan.token_budget - used, rows);
  if (prompts_only && plan.waiting.empty()) used = add_running_candidates(plan, decoding);

  if (used == 0 && plan.swapped.empty() && plan.waiting.empty() && releases_.empty()) {
    changed_ = false;
    return std::nullopt;
  }
  report_progress(plan);
  ++next_step_;
  changed_ = false;

  PendingPlan pending;
  pending.step = plan.step;
  pending.running = plan.running;
  pending.swapped = plan.swapped;
  pending.needs = plan.needs;
  for (const AdmissionCandidate& c : plan.waiting) pending.waiting.push_back({c.group, c.sequence});
  pending_ = std::move(pending);
  return plan;
}

void SchedulerCore::report_progress(PlanStep& plan) {
  for (const SequenceId id : to_report_) {
    const auto group = group_of_.find(id);
    if (group == group_of_.end()) continue;
    Sequence* s = find(find(group->second), id);
    if (s == nullptr || s->state != SequenceState::running) continue;
    for (; s->num_reported_tokens < s->output.size(); ++s->num_reported_tokens) {
      sampled_.push_back({id, s->output[s->num_reported_tokens]});
    }
    if (s->num_confirmed > s->num_reported) {
      s->num_reported = s->num_confirmed;
      progress_.push_back({id, s->num_confirmed});
    }
  }
  to_report_.clear();
  plan.sampled = std::exchange(sampled_, {});
  plan.progress = std::exchange(progress_, {});
  plan.forks = std::exchange(forks_, {});
  plan.releases = std::exchange(releases_, {});
}

std::int32_t SchedulerCore::num_decoding() const {
  std::int32_t count = 0;
  for (const SequenceGroup* group : running_) {
    for (const Sequence& s : group->sequences) {
      count += s.state == SequenceState::running && group->runnable_tokens(s) <= 1 ? 1 : 0;
    }
  }
  return count;
}

std::int32_t SchedulerCore::step_budget(std::int32_t decoding) const {
  if (decoding == 0 || config_.max_chunk_us == 0 || !config_.enable_chunked_prefill) {
    return config_.max_num_batched_tokens;
  }
  const double token_us = step_times_.us_per_token();
  const double chunk = token_us > 0 ? static_cast<double>(config_.max_chunk_us) / token_us : 0;
  const double wanted = std::max<double>(kLeastBatch, decoding + std::max<double>(kLeastChunk, chunk));
  return static_cast<std::int32_t>(std::min<double>(config_.max_num_batched_tokens, wanted));
}

std::int32_t SchedulerCore::add_running_candidates(PlanStep& plan, std::int32_t decoding) {
  // Decodes come before prompt chunks: rows <= budget, so every decode and at least one chunk token fit.
  std::int32_t chunk_budget = plan.token_budget - decoding;
  std::int32_t used = 0;
  for (const SequenceGroup* group : running_) {
    const auto first = static_cast<std::int32_t>(plan.needs.size());
    std::int32_t granted = 0;
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::running) continue;
      std::int32_t tokens = group->grew_too_large ? 0 : group->runnable_tokens(s);
      if (tokens > 1) {
        tokens = std::min(tokens, chunk_budget);
        chunk_budget -= tokens;
      }
      granted += tokens;
      plan.needs.push_back({s.id, s.num_computed, tokens, 0});
    }
    if (granted == 0) {
      plan.needs.resize(static_cast<std::size_t>(first));
      // It waits for its result, but those served before it may take its memory: else two such groups could preempt
      // themselves for each other's sake forever.
      if (group->num_in_flight == 0 || !group->depends_on_results()) continue;
    }
    used += granted;
    const auto count = static_cast<std::int32_t>(plan.needs.size()) - first;
    plan.running.push_back({group->entry.id, {first, count}, preemption_of(*group)});
  }
  return used;
}

std::int32_t SchedulerCore::add_swapped_candidates(PlanStep& plan, std::int32_t rows) {
  std::int32_t rows_taken = 0;
  for (const SequenceGroup* group : swapped_) {
    const std::int32_t rows_wanted = group->rows_reserved > 0 ? 0 : group->num_unfinished();
    if (group->num_in_flight > 0 || rows - rows_taken < rows_wanted)
      break;  // results to come, or no rows: in order only
    rows_taken += rows_wanted;
    const auto first = static_cast<std::int32_t>(plan.needs.size());
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::swapped) continue;
      // A chunk continues in the next step; what comes back now runs one token at most.
      plan.needs.push_back({s.id, s.num_computed, std::min(group->runnable_tokens(s), 1), 0});
    }
    plan.swapped.push_back({group->entry.id, {first, static_cast<std::int32_t>(plan.needs.size()) - first}});
  }
  return rows_taken;
}

void SchedulerCore::add_waiting_candidates(PlanStep& plan, std::int32_t token_budget, std::int32_t rows) {
  std::int64_t tokens = 0;
  waiting_->visit_in_order([&](RequestId id) {
    SequenceGroup& group = *groups_.at(id);
    if (group.num_in_flight > 0) return false;  // preempted with results still to come: nobody may overtake it
    std::int32_t rows_wanted = group.rows_reserved > 0 ? 0 : group.num_unfinished();
    for (Sequence& s : group.sequences) {
      if (s.state != SequenceState::waiting) continue;
      if (tokens >= token_budget || rows < rows_wanted) return false;
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
      candidate.may_chunk = config_.enable_chunked_prefill;
      candidate.use_prefix_cache = group.next_prompt_logprob >= group.prompt_len();
      tokens += static_cast<std::int64_t>(candidate.tokens->size());
      rows -= std::exchange(rows_wanted, 0);
      plan.waiting.push_back(std::move(candidate));
    }
    return true;
  });
}

PreemptionMode SchedulerCore::preemption_of(const SequenceGroup& group) const {
  if (!config_.can_swap || config_.preemption == PreemptionPolicy::recompute) return PreemptionMode::recompute;
  if (config_.preemption == PreemptionPolicy::swap) return PreemptionMode::swap;
  if (group.sequences.size() > 1) return PreemptionMode::swap;
  const std::int64_t num_tokens = group.sequences.front().num_computed;
  const std::int64_t num_blocks = (num_tokens + config_.block_size - 1) / config_.block_size;
  const bool swap = cost_.swap_us(num_blocks * config_.block_bytes) < cost_.recompute_us(num_tokens);
  return swap ? PreemptionMode::swap : PreemptionMode::recompute;
}

}  // namespace pagoda::scheduling
